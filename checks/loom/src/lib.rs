//! Models of the state that polyrpc shares between tasks and threads. loom runs each with every interleaving of its threads
//! that the memory model allows.
//!
//! The modules are those of `crates/polyrpc`, copied by `build.rs`. Those in files are reduced to what the copies use.

#![allow(dead_code, unused_imports, reason = "the models use a part of each module")]
#![allow(rustdoc::private_intra_doc_links, rustdoc::broken_intra_doc_links)]

/// What the modules use of `std::sync`.
mod sync {
    pub(crate) use loom::sync::atomic;
    pub(crate) use std::sync::{Arc, OnceLock, PoisonError, Weak};
}

/// The locks, which record no contention here.
mod contention {
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

/// The clock, whose value no model depends on.
mod runtime {
    use std::time::Instant;

    pub(crate) fn now() -> Instant {
        Instant::now()
    }
}

mod memory_budget {
    include!(concat!(env!("OUT_DIR"), "/memory_budget.rs"));
}

mod call {
    pub(crate) mod streaming {
        pub(crate) mod notify {
            include!(concat!(env!("OUT_DIR"), "/notify.rs"));
        }
    }
}

mod client {
    mod retryable {
        include!(concat!(env!("OUT_DIR"), "/retryable.rs"));
    }

    pub(super) mod cluster {
        pub(in crate::client) mod retry_budget {
            include!(concat!(env!("OUT_DIR"), "/retry_budget.rs"));
        }
    }

    pub(super) mod connection {
        pub(in crate::client) mod any_connection;
        pub(in crate::client) mod call_slot;

        mod keepalive {
            use std::time::Duration;

            pub(super) const READ_GRACE: Duration = Duration::from_millis(100);
        }

        mod call_counts {
            include!(concat!(env!("OUT_DIR"), "/call_counts.rs"));
        }

        pub(in crate::client) mod pending {
            include!(concat!(env!("OUT_DIR"), "/pending.rs"));
        }
    }

    mod pool {
        mod open_connections {
            include!(concat!(env!("OUT_DIR"), "/open_connections.rs"));
        }

        mod slot_queue {
            include!(concat!(env!("OUT_DIR"), "/slot_queue.rs"));
        }

        #[cfg(test)]
        mod models;
    }

    #[cfg(test)]
    mod models;
}

mod server {
    mod turn_queue {
        include!(concat!(env!("OUT_DIR"), "/turn_queue.rs"));
    }

    #[cfg(test)]
    mod models;
}

/// Every interleaving with at most two preemptions: all of them would take hours.
#[cfg(test)]
fn bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

//! What the calls of a protocol have no place for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polyrpc_core::Call;
use polyrpc_core::protocol::MetadataSupport;
use polyrpc_wire::Protocol;

use crate::propagation::CallScope;

/// Says once for each client what does not reach its servers, and goes on: what a call asks of its own (attachments,
/// credentials, mostly metadata too) is refused instead, by the session.
#[derive(Debug, Clone)]
pub(super) struct UnsupportedWarnings(Arc<WarnedOnce>);

#[derive(Debug)]
struct WarnedOnce {
    protocol: Protocol,
    deadline: AtomicBool,
    trace: AtomicBool,
    metadata: AtomicBool,
}

impl UnsupportedWarnings {
    /// `None` where there is a place for all of it.
    pub(super) fn of(protocol: Protocol) -> Option<Self> {
        let can = protocol.descriptor().capabilities;
        if can.deadline && can.carries_metadata() {
            return None;
        }
        // What has a place needs no word.
        let [deadline, trace, metadata] =
            [can.deadline, can.carries_metadata(), can.metadata != MetadataSupport::Dropped];
        let said = WarnedOnce {
            protocol,
            deadline: deadline.into(),
            trace: trace.into(),
            // Where they are refused, the session says so.
            metadata: metadata.into(),
        };
        Some(Self(Arc::new(said)))
    }

    /// A call is about to be sent.
    #[cold]
    pub(super) fn warn_unsupported(&self, call: &Call<'_>, inherited: &CallScope) {
        let said = &*self.0;
        let protocol = said.protocol.as_str();
        if call.timeout.is_some() && !said.deadline.swap(true, Ordering::Relaxed) {
            tracing::info!(
                protocol,
                "deadlines of calls do not travel by this protocol: the client keeps them, and the server its own limit"
            );
        }
        if inherited.trace().is_some() && !said.trace.swap(true, Ordering::Relaxed) {
            tracing::warn!(protocol, "traces end here: this protocol has no place for them");
        }
        if !call.head.metadata.is_empty() && !said.metadata.swap(true, Ordering::Relaxed) {
            tracing::warn!(protocol, "metadata of calls are not sent: this protocol has no place for them");
        }
    }
}

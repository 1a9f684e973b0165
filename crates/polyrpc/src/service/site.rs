//! What of a handler's failure reaches the caller, and where the rest of it is told.

use std::sync::Arc;
use std::time::Duration;

use polyrpc_wire::Status;

use super::Entry;
use super::context::ConnectionFacts;
use crate::rate_limited::EventLimiter;
use crate::task;

/// Where a call is handled: its connection and its method.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    connection: Arc<ConnectionFacts>,
    entry: Option<Arc<Entry>>,
}

impl Site {
    pub(super) fn new(connection: Arc<ConnectionFacts>, entry: Option<Arc<Entry>>) -> Self {
        Self { connection, entry }
    }

    /// A handler's failure as the caller is told it. An error that is not meant for him is logged, and stays the source of
    /// the status.
    #[cold]
    pub(crate) fn tell(&self, status: Status) -> Status {
        if !status.hides() {
            return status;
        }
        let exposed = status.clone().exposed();
        self.log(exposed.message());
        if self.connection.exposes_errors { exposed } else { status }
    }

    /// Logs an error with what tells its call from others: the connection's number and peer, what is called, and the
    /// trace if the caller named one.
    fn log(&self, error: &str) {
        let Some(suppressed) = FAILURES.allow() else { return };
        let (service, method) = self.entry.as_ref().map_or(("", ""), |entry| (entry.service(), entry.name()));
        let (connection, peer) = (self.connection.id, &self.connection.peer);
        let trace = task::current().trace().and_then(|trace| trace.parent).map(|parent| parent.to_string());
        tracing::error!(error, service, method, connection, %peer, trace, suppressed, "a handler failed");
    }
}

/// Whoever finds a request at which a handler fails can send it without end.
static FAILURES: EventLimiter = EventLimiter::new(20, Duration::from_secs(10));

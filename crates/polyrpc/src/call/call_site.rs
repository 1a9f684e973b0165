//! Which part of a handler's failure is sent to the caller, and where the rest is logged.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use polyrpc_core::{Fault, Status};

use super::{ConnectionFacts, MethodName, Outcome, propagation};
use crate::rate_limited::EventLimiter;

/// Target of the `tracing` events.
const TARGET: &str = "polyrpc::service";

/// Where a call is handled: its connection and its method.
#[derive(Debug, Clone)]
pub(crate) struct CallSite {
    connection: Arc<ConnectionFacts>,
    method: Option<Arc<MethodName>>,
}

impl CallSite {
    pub(crate) fn new(connection: Arc<ConnectionFacts>, called: Option<Arc<MethodName>>) -> Self {
        Self { connection, method: called }
    }

    /// Returns a handler's failure as it is sent to the caller. An internal error is logged, and stays the source of
    /// the status.
    #[cold]
    pub(crate) fn status_for_caller(&self, status: Status) -> Status {
        if !status.hides_source() {
            return status;
        }
        let exposed = status.clone().exposed();
        self.log(exposed.message());
        if self.connection.exposes_errors { exposed } else { status }
    }

    /// Returns the response to a call whose handler panicked, in the words of rpcx (`server/service.go`), which its
    /// clients may match. The panic's message is logged: it may contain details that are not meant for the caller.
    #[cold]
    pub(crate) fn handle_panic(&self, panic: &(dyn Any + Send)) -> Outcome {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or(PANICKED);
        self.log_panic(text);
        let exposed_text = if self.connection.exposes_errors { text } else { PANICKED };
        let status =
            Status::internal(format!("[service internal error]: {exposed_text}")).with_fault(Fault::Us);
        Outcome::failed(status.with_source(text))
    }

    fn log_panic(&self, panic: &str) {
        let Some(suppressed) = PANICS.allow() else { return };
        let (service, method) = self.names();
        let (connection, peer) = (self.connection.id, &self.connection.peer);
        let trace = trace();
        tracing::error!(target: TARGET, panic, service, method, connection, %peer, trace, suppressed, "a handler panicked");
    }

    /// Returns the names of the called service and method.
    fn names(&self) -> (&str, &str) {
        self.method.as_ref().map_or(("", ""), |called| (called.service(), called.method()))
    }

    /// Logs an error with what identifies its call: the connection's id and peer, the method, and the trace if the
    /// caller sent one.
    fn log(&self, error: &str) {
        let Some(suppressed) = FAILURES.allow() else { return };
        let (service, method) = self.names();
        let (connection, peer) = (self.connection.id, &self.connection.peer);
        let trace = trace();
        tracing::error!(target: TARGET, error, service, method, connection, %peer, trace, suppressed, "a handler failed");
    }
}

/// Returns the trace that the caller sent.
fn trace() -> Option<String> {
    propagation::current().trace().and_then(|trace| trace.parent).map(|parent| parent.to_string())
}

/// Message that a caller receives for a panic.
const PANICKED: &str = "the handler panicked";

static PANICS: EventLimiter = EventLimiter::new(20, Duration::from_secs(10));

/// A peer that finds a request at which a handler fails can send it without end.
static FAILURES: EventLimiter = EventLimiter::new(20, Duration::from_secs(10));

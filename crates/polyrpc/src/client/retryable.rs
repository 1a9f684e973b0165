//! Retry semantics of a failed call.

use polyrpc_core::{Code, Fault, Reply, Retry, Scope, Status};

/// Returns the failure of a call, if it failed.
pub(super) fn failure(ended: &Result<Option<Reply>, Status>) -> Option<&Status> {
    match ended {
        Ok(reply) => reply.as_ref().and_then(|reply| reply.result.as_ref().err()),
        Err(status) => Some(status),
    }
}

/// Whether outlier detection and load balancing count this failure against the server.
pub(super) fn counts_against_server(status: &Status) -> bool {
    // For example, a response above this client's limit: every server would answer with it.
    if status.fault() == Fault::Us {
        return false;
    }
    let is_fault = status.fault() != Fault::Caller && status.code() != Code::Cancelled;
    status.scope() == Scope::Connection || is_fault
}

/// Whether the connection refused or lost the call before the server started it.
pub(super) fn is_connection_failure_before_start(status: &Status) -> bool {
    status.scope() == Scope::Connection && status.retry() == Retry::Elsewhere
}

/// Whether a call with this failure may be retried.
pub(super) fn is_retryable(status: &Status, idempotent: bool) -> bool {
    match status.retry() {
        Retry::Elsewhere => true,
        Retry::IfIdempotent => idempotent,
        Retry::Never => false,
    }
}

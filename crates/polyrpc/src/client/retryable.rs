//! Retry semantics of a failed call.

use polyrpc_core::{Code, Fault, Reply, Retry, Scope, Status};

/// Returns the failure of a call, if it failed.
pub(super) fn failure(ended: &Result<Option<Reply>, Status>) -> Option<&Status> {
    match ended {
        Ok(reply) => reply.as_ref().and_then(|reply| reply.result.as_ref().err()),
        Err(status) => Some(status),
    }
}

/// Whether a call failed through no fault of this side.
pub(super) fn is_by_server(status: &Status) -> bool {
    // Such as a response that exceeds this client's limit: every server would answer so.
    if status.fault() == Fault::Us {
        return false;
    }
    let is_fault = status.fault() != Fault::Caller && status.code() != Code::Cancelled;
    status.scope() == Scope::Connection || is_fault
}

/// Whether it is certain that no server processed the call.
pub(super) fn is_unprocessed(status: &Status) -> bool {
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

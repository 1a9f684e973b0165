//! What the failure of a call says of making it again.

use polyrpc_core::{Reply, Retry, Scope, Status};

/// Why a call failed, if it did.
pub(super) fn failure(ended: &Result<Option<Reply>, Status>) -> Option<&Status> {
    match ended {
        Ok(reply) => reply.as_ref().and_then(|reply| reply.result.as_ref().err()),
        Err(status) => Some(status),
    }
}

/// Whether it is known that no server had the call.
pub(super) fn is_unprocessed(status: &Status) -> bool {
    status.scope() == Scope::Connection && status.retry() == Retry::Elsewhere
}

/// Whether a call that failed so may be made again, being idempotent or not.
pub(super) fn is_retryable(status: &Status, idempotent: bool) -> bool {
    match status.retry() {
        Retry::Elsewhere => true,
        Retry::IfIdempotent => idempotent,
        Retry::Never => false,
    }
}

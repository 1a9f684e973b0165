//! State of a request for the HTTP fallback.

use bytes::Bytes;

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct ActiveExchange {
    pub(super) head_only: bool,
    /// The head of the response has been sent.
    pub(super) begun: bool,
    /// The response has no body.
    pub(super) bare: bool,
}

/// The body of a request, received in pieces.
#[derive(Debug)]
pub(in crate::http_server::h2) struct Pieces {
    pub(super) piece: Bytes,
    pub(super) ended: bool,
}

impl Pieces {
    /// Returns the number of buffered bytes that were not emitted.
    pub(super) fn held(&self) -> usize {
        self.piece.len()
    }
}

//! What is kept of a request that somebody else answers.

use bytes::Bytes;

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct ActiveExchange {
    pub(super) head_only: bool,
    /// The head of the response was sent.
    pub(super) begun: bool,
    /// It has no body.
    pub(super) bare: bool,
}

/// The body of a request, as it comes.
#[derive(Debug)]
pub(in crate::http_server::h2) struct Pieces {
    pub(super) piece: Bytes,
    pub(super) ended: bool,
}

impl Pieces {
    /// Bytes that were not given out.
    pub(super) fn held(&self) -> usize {
        self.piece.len()
    }
}

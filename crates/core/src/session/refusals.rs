//! Rejections by a session itself.

/// Number of rejections by a session itself, by cause: there was no call, or the call was aborted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Exceeded [`Limits`](super::Limits): by a message, a body or a head.
    pub too_large: u64,
    /// Unknown services, methods or paths.
    pub unknown: u64,
    /// Unsupported content types, encodings or HTTP methods.
    pub unsupported: u64,
}

/// Cause of a rejection by a session itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// See [`Refusals::too_large`].
    TooLarge,
    /// See [`Refusals::unknown`].
    Unknown,
    /// See [`Refusals::unsupported`].
    Unsupported,
}

/// Rejections that were not reported yet. Takes one word if there are none.
#[derive(Debug, Default)]
pub struct UnreportedRefusals(Option<Box<Refusals>>);

impl UnreportedRefusals {
    /// Counts a rejection.
    #[cold]
    pub fn record(&mut self, refused: RefusalCause) {
        let refusals = self.0.get_or_insert_default();
        match refused {
            RefusalCause::TooLarge => refusals.too_large += 1,
            RefusalCause::Unknown => refusals.unknown += 1,
            RefusalCause::Unsupported => refusals.unsupported += 1,
        }
    }

    /// Returns the rejections since the last call, for
    /// [`Housekeeping::take_refusals`](super::server::Housekeeping::take_refusals).
    pub fn take(&mut self) -> Option<Refusals> {
        self.0.take().map(|refusals| *refusals)
    }
}

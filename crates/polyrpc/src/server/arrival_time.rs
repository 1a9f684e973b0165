use std::time::Instant;

/// When the bytes at hand came, as far as somebody wants to know.
#[derive(Debug)]
pub(super) struct ArrivalTime {
    at: Option<Instant>,
    /// Somebody wanted to know: from now on each read is timed.
    wanted: bool,
}

impl ArrivalTime {
    pub(super) fn new(wanted: bool) -> Self {
        Self { at: None, wanted }
    }

    /// Bytes have come.
    pub(super) fn mark(&mut self) {
        self.at = self.wanted.then(Instant::now);
    }

    /// When the bytes at hand came; now, if it was not noted.
    pub(super) fn time(&mut self) -> Instant {
        self.wanted = true;
        *self.at.get_or_insert_with(Instant::now)
    }

    /// When the bytes at hand came, if that is known already.
    pub(super) fn known(&self) -> Option<Instant> {
        self.at
    }
}

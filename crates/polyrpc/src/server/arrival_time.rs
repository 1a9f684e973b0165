use std::time::Instant;

/// Arrival time of the bytes in the inbox, if it is needed.
#[derive(Debug)]
pub(super) struct ArrivalTime {
    at: Option<Instant>,
    /// Whether it was needed once: from then on each read is timed.
    wanted: bool,
}

impl ArrivalTime {
    pub(super) fn new(wanted: bool) -> Self {
        Self { at: None, wanted }
    }

    /// Records that bytes have arrived.
    pub(super) fn mark(&mut self) {
        self.at = self.wanted.then(Instant::now);
    }

    /// Returns when the bytes in the inbox arrived; now, if that was not recorded.
    pub(super) fn time(&mut self) -> Instant {
        self.wanted = true;
        *self.at.get_or_insert_with(Instant::now)
    }

    /// Returns when the bytes in the inbox arrived, if that was recorded.
    pub(super) fn get(&self) -> Option<Instant> {
        self.at
    }
}

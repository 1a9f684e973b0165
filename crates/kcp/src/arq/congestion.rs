/// Congestion control: how many segments may be in flight (`kcp.go: Input`, `flush`).
///
/// ```text
///            acknowledgement              skipped by later ones         timed out
///  slow start ────────▶ avoidance   any ────────▶ avoidance at half   any ────────▶ slow start at 1
///   +1 each   at the    +1/window                 of what is in flight
///             threshold  each
/// ```
#[derive(Debug)]
pub(super) struct Congestion {
    enabled: bool,
    window: u32,
    threshold: u32,
    /// Congestion window in bytes, which grows by less than a segment at a time.
    bytes: u32,
    mss: u32,
}

impl Congestion {
    pub(super) fn new(enabled: bool, mss: usize) -> Self {
        let mss = mss as u32;
        Self { enabled, window: 1, threshold: MIN_THRESHOLD, bytes: mss, mss }
    }

    /// Returns the window, of at most `max` segments.
    pub(super) fn window(&self, max: u32) -> u32 {
        if self.enabled { max.min(self.window) } else { max }
    }

    /// Handles new acknowledgements from a peer with room for `remote` segments.
    pub(super) fn on_acknowledgement(&mut self, remote: u32) {
        if self.window >= remote {
            return;
        }
        if self.window < self.threshold {
            self.window += 1;
            self.bytes = self.bytes.saturating_add(self.mss);
        } else {
            self.bytes = self.bytes.max(self.mss);
            let step = self.mss.saturating_mul(self.mss) / self.bytes + self.mss / 16;
            self.bytes = self.bytes.saturating_add(step);
            if (self.window + 1).saturating_mul(self.mss) <= self.bytes {
                self.window += 1;
            }
        }
        if self.window > remote {
            self.set(remote);
        }
    }

    /// Handles a reordering loss: later segments were acknowledged before some of the `in_flight`, at least `skips` of
    /// them.
    pub(super) fn on_reordering(&mut self, in_flight: u32, skips: u32) {
        self.threshold = (in_flight / 2).max(MIN_THRESHOLD);
        self.set(self.threshold.saturating_add(skips));
    }

    /// Handles a retransmission timeout.
    pub(super) fn on_timeout(&mut self) {
        self.threshold = (self.window / 2).max(MIN_THRESHOLD);
        self.set(1);
    }

    fn set(&mut self, window: u32) {
        self.window = window.max(1);
        self.bytes = self.window.saturating_mul(self.mss);
    }
}

/// `kcp.go: IKCP_THRESH_MIN`
const MIN_THRESHOLD: u32 = 2;

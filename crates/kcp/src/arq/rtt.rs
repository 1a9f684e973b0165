use crate::time::Millis;

/// Retransmission timeout (RFC 6298, in the variant of `kcp.go: update_ack`).
#[derive(Debug)]
pub(super) struct Rtt {
    /// `None` before the first sample.
    smoothed: Option<i32>,
    variation: i32,
    min: u32,
    /// No peer acknowledges faster than this.
    interval: u32,
    timeout: u32,
}

impl Rtt {
    pub(super) fn new(min: u32, interval: u32) -> Self {
        Self { smoothed: None, variation: 0, min, interval, timeout: INITIAL_TIMEOUT }
    }

    /// Adds a sample: a segment sent at `sent` was acknowledged now.
    pub(super) fn sample(&mut self, now: Millis, sent: Millis) {
        let rtt = now.since(sent);
        // A timestamp in the future, or a minute old, is forged.
        if !(0..=MAX_TIMEOUT as i32).contains(&rtt) {
            return;
        }
        let smoothed = match self.smoothed {
            None => {
                self.variation = rtt / 2;
                rtt
            }
            Some(last) => {
                let delta = rtt - last;
                let smoothed = last + (delta >> 3);
                // A sample below the expected range does not indicate instability: it weighs an eighth.
                let weight = if rtt < smoothed - self.variation { 5 } else { 2 };
                self.variation += (delta.abs() - self.variation) >> weight;
                smoothed
            }
        };
        self.smoothed = Some(smoothed);
        let spread = (self.variation.unsigned_abs() * 4).max(self.interval);
        self.timeout = (smoothed.unsigned_abs() + spread).clamp(self.min, MAX_TIMEOUT);
    }

    /// Returns the milliseconds until a segment counts as lost.
    pub(super) fn timeout(&self) -> u32 {
        self.timeout
    }
}

/// `kcp.go: IKCP_RTO_DEF`
const INITIAL_TIMEOUT: u32 = 200;
/// `kcp.go: IKCP_RTO_MAX`
const MAX_TIMEOUT: u32 = 60_000;

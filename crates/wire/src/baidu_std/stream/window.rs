//! Send window: how far the sender may run ahead of the peer's consumption (brpc `stream.cpp`, `AppendIfNotFull` and
//! `SetRemoteConsumed`).

use polyrpc_core::session::StreamOptions;

/// Bytes sent on a stream, and bytes of them that the peer has consumed.
///
/// 0 <= consumed <= produced: a peer cannot have consumed what was not sent, whatever its feedback.
#[derive(Debug)]
pub(super) struct Window {
    produced: u64,
    consumed: u64,
    /// How far ahead `produced` may be; `None`: unlimited.
    size: Option<u64>,
    min: u64,
    max: u64,
}

impl Window {
    /// Creates a window. `varies`: its size depends on the bytes in flight on all streams of the connection.
    pub(super) fn new(options: &StreamOptions, varies: bool) -> Self {
        let max = options.max_buf_size as u64;
        // brpc ignores a minimum that exceeds the maximum.
        let min = Some(options.min_buf_size as u64).filter(|min| *min <= max).unwrap_or_default();
        let size = match max {
            0 => None,
            _ if varies && min > 0 => Some(min),
            max => Some(max),
        };
        Self { produced: 0, consumed: 0, size, min, max }
    }

    pub(super) fn has_room(&self) -> bool {
        self.size.is_none_or(|size| self.in_flight() < size)
    }

    pub(super) fn produce(&mut self, bytes: usize) {
        self.produced += bytes as u64;
    }

    /// Returns the known number of bytes sent and not consumed. Without a window there is no feedback.
    pub(super) fn in_flight(&self) -> u64 {
        if self.size.is_some() { self.produced - self.consumed } else { 0 }
    }

    /// Applies the peer's total of consumed bytes. Returns the increase; a total that is not larger is ignored.
    pub(super) fn apply_feedback(&mut self, consumed: i64) -> u64 {
        let consumed = u64::try_from(consumed).unwrap_or_default().min(self.produced);
        let more = consumed.saturating_sub(self.consumed);
        self.consumed += more;
        more
    }

    /// Adapts the window to the bytes in flight: it shrinks if all streams together have too many, and grows if it is
    /// fully used.
    pub(super) fn adapt(&mut self, crowded: bool) {
        let Some(size) = self.size else { return };
        self.size = Some(match crowded {
            true if self.min > 0 => self.min,
            true => (size / 2).max(1),
            false if !self.has_room() => size.saturating_mul(2).min(self.max),
            false => size,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(max_buf_size: usize, min_buf_size: usize, varies: bool) -> Window {
        Window::new(&StreamOptions { max_buf_size, min_buf_size, receives: true, idle_timeout: None }, varies)
    }

    #[test]
    fn sending_stops_after_the_message_that_exceeds_the_window() {
        let mut window = window(10, 0, false);
        window.produce(9);
        assert!(window.has_room());
        window.produce(100);
        assert!(!window.has_room());
        assert_eq!(window.apply_feedback(99), 99);
        assert!(!window.has_room());
        assert_eq!(window.apply_feedback(100), 1);
        assert!(window.has_room());
    }

    #[test]
    fn stale_or_impossible_feedback_is_ignored() {
        let mut window = window(10, 0, false);
        window.produce(10);
        for lie in [0, -1, i64::MIN] {
            assert_eq!(window.apply_feedback(lie), 0);
        }
        assert!(!window.has_room());
        assert_eq!(window.apply_feedback(i64::MAX), 10, "no more was sent");
        assert_eq!(window.apply_feedback(5), 0, "the earlier feedback was higher");
        window.produce(10);
        assert!(!window.has_room());
    }

    #[test]
    fn unlimited_window_always_has_room() {
        let mut window = window(0, 0, true);
        window.produce(usize::MAX);
        assert!(window.has_room());
        assert_eq!(window.in_flight(), 0);
        window.adapt(true);
        assert!(window.has_room());
    }

    #[test]
    fn variable_window_grows_when_exhausted_and_shrinks_under_pressure() {
        let mut varying = window(100, 20, true);
        varying.produce(20);
        assert!(!varying.has_room());
        varying.adapt(false);
        assert!(varying.has_room());
        varying.produce(20);
        varying.adapt(false);
        varying.produce(40);
        varying.adapt(false);
        varying.produce(20);
        assert!(!varying.has_room(), "no further than the most");
        varying.adapt(true);
        varying.apply_feedback(79);
        assert!(!varying.has_room());
        varying.apply_feedback(81);
        assert!(varying.has_room());

        let mut halved = window(100, 0, true);
        for _ in 0..9 {
            halved.adapt(true);
        }
        assert!(halved.has_room());
        halved.produce(1);
        assert!(!halved.has_room());
    }
}

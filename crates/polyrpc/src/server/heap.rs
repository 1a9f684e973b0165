//! Decides when free memory is returned to the system.

use std::time::Duration;

use super::tick::ticks;

/// Tracks how many bytes a server holds for its peers, so that memory is returned to the system after they drop.
#[derive(Debug, Default)]
pub(super) struct Heap {
    /// The most bytes that were held since memory was last returned.
    peak: usize,
    /// Bytes that had been decompressed off the connections' tasks by then.
    made: usize,
    /// Bytes that connections had released in bulk by then.
    released: usize,
    /// The same at the last check.
    last_released: usize,
    /// When memory was last returned, in ticks.
    trimmed: u32,
    /// Memory was last returned perhaps in the middle of a release; the rest was not returned yet.
    is_rest_due: bool,
}

/// Minimum number of freed bytes for which memory is returned to the system.
const MIN_TRIM_BYTES: usize = 8 << 20;

/// The same for the rest of a release of which most has been returned. The counted bytes can be a fraction of the
/// allocator's memory if they consist of many small allocations.
const MIN_REMAINDER_BYTES: usize = 1 << 20;

/// The minimum interval between two returns. The system must zero memory that is needed again.
const MIN_TRIM_INTERVAL: Duration = Duration::from_secs(5);

impl Heap {
    /// Returns whether to return memory, given how many bytes are held now, how many were decompressed off the
    /// connections' tasks, and how many connections released in bulk, since the process started.
    ///
    /// Bytes that are held and released between two checks do not appear in the peak. They count once releases have
    /// stopped: under load the memory would be needed again.
    pub(super) fn should_trim(&mut self, held: usize, made: usize, released: usize, now: u32) -> bool {
        self.peak = self.peak.max(held);
        let freed = self.peak - held;
        let is_quiet = std::mem::replace(&mut self.last_released, released) == released;
        let is_much = freed >= MIN_TRIM_BYTES && freed > held
            || made.wrapping_sub(self.made) >= MIN_TRIM_BYTES
            || is_quiet && released.wrapping_sub(self.released) >= MIN_TRIM_BYTES;
        let is_rest = self.is_rest_due && freed >= MIN_REMAINDER_BYTES && freed > held;
        let slack = (is_much || is_rest) && now.saturating_sub(self.trimmed) >= ticks(MIN_TRIM_INTERVAL);
        if slack {
            self.reset(held, made, released, now);
            // Only once, so that a small load that varies does not cost a return every few seconds.
            self.is_rest_due = is_much;
        }
        slack
    }

    /// Records that another server of the process, which shares the budget, has returned memory. It returns the rest
    /// too.
    pub(super) fn on_trimmed_elsewhere(&mut self, held: usize, made: usize, released: usize, now: u32) {
        self.reset(held, made, released, now);
        self.is_rest_due = false;
    }

    fn reset(&mut self, held: usize, made: usize, released: usize, now: u32) {
        (self.peak, self.made, self.released) = (held, made, released);
        self.trimmed = now;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tick::TICK;
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn memory_is_trimmed_once_most_of_it_is_free() {
        let mut heap = Heap::default();
        assert!(!heap.should_trim(100 * MIB, 0, 0, 100));
        assert!(!heap.should_trim(60 * MIB, 0, 0, 101));
        assert!(heap.should_trim(40 * MIB, 0, 0, 102));
        assert!(!heap.should_trim(39 * MIB, 0, 0, 150));
        assert!(heap.should_trim(MIB, 0, 0, 151));
    }

    #[test]
    fn rest_of_a_release_is_trimmed_once() {
        let mut heap = Heap::default();
        assert!(!heap.should_trim(20 * MIB, 0, 0, 100));
        assert!(heap.should_trim(5 * MIB, 0, 0, 101));
        assert!(!heap.should_trim(0, 0, 0, 102), "too early");
        assert!(heap.should_trim(0, 0, 0, 150));
        assert!(!heap.should_trim(5 * MIB, 0, 0, 200));
        assert!(!heap.should_trim(0, 0, 0, 201), "once");
    }

    #[test]
    fn memory_that_another_server_has_returned_is_not_trimmed_again() {
        let mut heap = Heap::default();
        assert!(!heap.should_trim(100 * MIB, 0, 0, 100));
        heap.on_trimmed_elsewhere(40 * MIB, 0, 0, 101);
        assert!(!heap.should_trim(40 * MIB, 0, 0, 102));
        assert!(!heap.should_trim(38 * MIB, 0, 0, 150), "the other returns the rest");
        assert!(heap.should_trim(10 * MIB, 0, 0, 151));
    }

    #[test]
    fn little_free_memory_is_not_trimmed() {
        let mut heap = Heap::default();
        assert!(!heap.should_trim(7 * MIB, 0, 0, 100));
        assert!(!heap.should_trim(0, 0, 0, 101));
    }

    #[test]
    fn decompressed_memory_is_trimmed_although_never_held() {
        let mut heap = Heap::default();
        assert!(!heap.should_trim(0, 7 * MIB, 0, 100));
        assert!(heap.should_trim(0, 60 * MIB, 0, 101));
        assert!(!heap.should_trim(0, 60 * MIB, 0, 200));
    }

    #[test]
    fn memory_released_between_two_checks_is_trimmed_once_idle() {
        let mut heap = Heap::default();
        assert!(!heap.should_trim(0, 0, 64 * MIB, 100));
        assert!(!heap.should_trim(0, 0, 80 * MIB, 101));
        assert!(heap.should_trim(0, 0, 80 * MIB, 102));
        assert!(!heap.should_trim(0, 0, 80 * MIB, 200));
    }

    #[test]
    fn memory_is_trimmed_at_a_limited_rate() {
        let mut heap = Heap::default();
        let seldom = (MIN_TRIM_INTERVAL.as_millis() / TICK.as_millis()) as u32;
        let mut given = 0;
        for now in seldom..seldom * 5 {
            given += u32::from(heap.should_trim(if now % 2 == 0 { 100 * MIB } else { 0 }, 0, 0, now));
        }
        assert_eq!(given, 4);
    }
}

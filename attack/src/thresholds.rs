//! Thresholds between a server that withstands an attack and one that does not.

use std::time::Duration;

/// A lower p99 of the baseline counts as this: timers are no finer, and other programs use the machine.
pub(crate) const MIN_BASELINE_P99: Duration = Duration::from_millis(2);
/// Maximum ratio of the p99 to its baseline.
pub(crate) const MAX_P99_RATIO: f64 = 2.0;
/// Share of one core that a hypervisor may take while a p99 is measured. On an idle machine the p99 of a timer was 0.3 to
/// 0.8 ms below it, and up to 4.3 ms above it.
pub(crate) const MAX_STOLEN_SHARE: f64 = 0.02;
/// The short form accepts any p99 up to this. Its windows last 0.8 s, so that a burst of 10 ms is already in the p99.
pub(crate) const SHORT_MAX_P99: Duration = Duration::from_millis(100);
/// Maximum latency of a request to the admin listener.
pub(crate) const MAX_ADMIN_LATENCY: Duration = Duration::from_millis(100);
/// The same in the short form, which runs a debug build along with other tests.
pub(crate) const SHORT_MAX_ADMIN_LATENCY: Duration = Duration::from_secs(1);
/// Maximum resident memory of a server in addition to its memory budget, in bytes.
pub(crate) const MAX_ABOVE_BUDGET: usize = 64 << 20;
/// Maximum growth of the resident memory after an attack, in bytes.
pub(crate) const MAX_MEMORY_GROWTH: usize = 32 << 20;

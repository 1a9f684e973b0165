//! Automatic fallback of a route to its old upstream (`rollback`).

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use polyrpc::Code;
use polyrpc_console::vars::Gauge;

use crate::config::Rollback as Spec;

/// Watches the calls of a route, and decides when all of them fall back to one upstream.
#[derive(Debug)]
pub(crate) struct AutoRollback {
    spec: Spec,
    /// Why the route fell back.
    reason: OnceLock<String>,
    /// 1 once the route fell back.
    gauge: Gauge,
    windows: Mutex<Windows>,
}

#[derive(Debug)]
struct Windows {
    /// The upstream to fall back to.
    base: Window,
    /// All others.
    others: Window,
    /// The last known percentile of the base, for when it gets no more calls.
    base_p99: Option<u64>,
}

impl AutoRollback {
    pub(crate) fn new(spec: Spec, gauge: Gauge) -> Self {
        gauge.set(0.0);
        let slot = spec.window.0 / SLOTS as u32;
        let windows = Windows { base: Window::new(slot), others: Window::new(slot), base_p99: None };
        Self { spec, reason: OnceLock::new(), gauge, windows: Mutex::new(windows) }
    }

    /// Returns why the route fell back, if it did. It stays fallen back until the route changes.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Returns the name of the upstream to roll back to.
    pub(crate) fn target(&self) -> &str {
        &self.spec.to
    }

    /// Records a call and decides whether to fall back. `took` is `None` if the duration does not count.
    pub(crate) fn record(&self, upstream: &str, code: Option<Code>, took: Option<Duration>, now: Instant) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let is_base = upstream == self.spec.to;
        let window = if is_base { &mut windows.base } else { &mut windows.others };
        window.record(code.is_some_and(is_fault), took, now);
        if is_base || self.reason.get().is_some() {
            return;
        }
        if let Some(reason) = self.verdict(&mut windows, now) {
            tracing::error!(target: "polyrpc_gateway", to = self.spec.to, reason, "a route fell back");
            let _ = self.reason.set(reason);
            self.gauge.set(1.0);
        }
    }

    fn verdict(&self, windows: &mut Windows, now: Instant) -> Option<String> {
        let (base, others) = (windows.base.sum(now), windows.others.sum(now));
        let enough = |calls: u64| calls >= self.spec.min_calls;
        if !enough(others.calls) {
            return None;
        }
        if let Some(max) = self.spec.failures {
            let usual = if enough(base.calls) { base.fault_share() } else { 0.0 };
            if others.fault_share() - usual > max.0 {
                return Some(format!(
                    "{} of {} calls failed, and {:.1} % at `{}`",
                    others.faults,
                    others.calls,
                    usual * 100.0,
                    self.spec.to
                ));
            }
        }
        let ratio = self.spec.p99_ratio?;
        // Percentiles are more expensive to compute.
        if !enough(others.timed) || !others.calls.is_multiple_of(CHECK_INTERVAL_CALLS) {
            return None;
        }
        if enough(base.timed) {
            windows.base_p99 = Some(windows.base.p99(now));
        }
        let (usual, slow) = (windows.base_p99?, windows.others.p99(now));
        (slow as f64 > usual as f64 * ratio).then(|| {
            format!("the slowest hundredth of calls took {slow} µs, and {usual} µs at `{}`", self.spec.to)
        })
    }
}

/// Whether a failure is the server's, and not the caller's.
pub(crate) fn is_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::Internal
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Unimplemented
            | Code::DataLoss
    )
}

/// Calls of the last seconds.
#[derive(Debug)]
struct Window {
    slots: [Slot; SLOTS],
    length: Duration,
    /// Begin of the current slot, and its index.
    begin: Option<Instant>,
    index: usize,
}

#[derive(Debug, Clone)]
struct Slot {
    sum: Sum,
    /// Calls by their duration.
    buckets: Box<[u32; BUCKETS]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    calls: u64,
    faults: u64,
    /// Those whose duration counts.
    timed: u64,
}

impl Sum {
    fn fault_share(self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.faults as f64 / self.calls as f64 }
    }
}

impl Window {
    fn new(length: Duration) -> Self {
        let slot = || Slot { sum: Sum::default(), buckets: Box::new([0; BUCKETS]) };
        Self { slots: std::array::from_fn(|_| slot()), length, begin: None, index: 0 }
    }

    fn record(&mut self, fault: bool, took: Option<Duration>, now: Instant) {
        self.advance(now);
        let slot = &mut self.slots[self.index];
        slot.sum.calls += 1;
        slot.sum.faults += u64::from(fault);
        if let Some(took) = took {
            slot.sum.timed += 1;
            slot.buckets[bucket(took)] += 1;
        }
    }

    fn sum(&mut self, now: Instant) -> Sum {
        self.advance(now);
        let add = |sum: Sum, slot: &Slot| Sum {
            calls: sum.calls + slot.sum.calls,
            faults: sum.faults + slot.sum.faults,
            timed: sum.timed + slot.sum.timed,
        };
        self.slots.iter().fold(Sum::default(), add)
    }

    /// The 99th percentile in microseconds, accurate to an eighth.
    fn p99(&mut self, now: Instant) -> u64 {
        let calls = self.sum(now).timed;
        let mut above = 0;
        for bucket in (0..BUCKETS).rev() {
            above += self.slots.iter().map(|slot| u64::from(slot.buckets[bucket])).sum::<u64>();
            if above * 100 > calls {
                return lower_bound(bucket);
            }
        }
        0
    }

    /// Clears the slots that have left the window.
    fn advance(&mut self, now: Instant) {
        let begin = *self.begin.get_or_insert(now);
        let passed = now.saturating_duration_since(begin).as_nanos() / self.length.as_nanos().max(1);
        for _ in 0..passed.min(SLOTS as u128) {
            self.index = (self.index + 1) % SLOTS;
            let slot = &mut self.slots[self.index];
            slot.sum = Sum::default();
            slot.buckets.fill(0);
        }
        if passed > 0 {
            self.begin = Some(now);
        }
    }
}

/// Eight buckets for each power of two of microseconds.
fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(8);
    let power = micros.ilog2();
    let eighth = (micros >> (power - 3)) & 7;
    (((power - 3) * 8) as usize + eighth as usize).min(BUCKETS - 1)
}

fn lower_bound(bucket: usize) -> u64 {
    (8 + (bucket % 8) as u64) << (bucket / 8)
}

/// Slots of the window, which expire one after the other.
const SLOTS: usize = 10;

/// Covers durations up to some hours.
const BUCKETS: usize = 8 * 32;

/// Number of calls between two checks of the percentiles.
const CHECK_INTERVAL_CALLS: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn rollback(failures: Option<f64>, ratio: Option<f64>) -> AutoRollback {
        AutoRollback::new(config::rollback("a", failures, ratio), Gauge::default())
    }

    const FAST: Duration = Duration::from_millis(1);

    #[test]
    fn route_falls_back_when_more_calls_fail_than_allowed() {
        let (rollback, now) = (rollback(Some(0.1), None), Instant::now());
        for n in 0..1000 {
            let failed = |each: u32| (n % each == 0).then_some(Code::Internal);
            rollback.record("a", failed(20), Some(FAST), now);
            rollback.record("b", failed(10), Some(FAST), now);
        }
        assert_eq!(rollback.reason(), None, "10 % is 5 % more than usual");
        for _ in 0..200 {
            rollback.record("b", Some(Code::Unavailable), Some(FAST), now);
        }
        assert!(rollback.reason().unwrap().contains("5.0 % at `a`"), "{:?}", rollback.reason());
    }

    #[test]
    fn failures_of_callers_and_few_calls_do_not_count() {
        let (rollback, now) = (rollback(Some(0.0), None), Instant::now());
        for _ in 0..500 {
            rollback.record("b", Some(Code::NotFound), Some(FAST), now);
        }
        assert_eq!(rollback.reason(), None);
        let later = now + Duration::from_secs(31);
        for _ in 0..99 {
            rollback.record("b", Some(Code::Internal), Some(FAST), later);
        }
        assert_eq!(rollback.reason(), None);
        rollback.record("b", Some(Code::Internal), Some(FAST), later);
        assert!(rollback.reason().is_some());
    }

    #[test]
    fn route_falls_back_when_calls_are_slow() {
        let (rollback, now) = (rollback(None, Some(3.0)), Instant::now());
        for n in 0..1000 {
            let took = |slow: u64| Duration::from_millis(if n % 50 == 0 { slow } else { 1 });
            rollback.record("a", None, Some(took(10)), now);
            rollback.record("b", None, Some(took(25)), now);
        }
        assert_eq!(rollback.reason(), None);
        // The base gets no more calls, and its percentile is still known.
        let later = now + Duration::from_secs(40);
        for _ in 0..1000 {
            rollback.record("b", None, Some(Duration::from_millis(40)), later);
        }
        assert!(rollback.reason().is_some());
    }

    #[test]
    fn duration_of_streams_does_not_cause_a_fallback() {
        let (rollback, now) = (rollback(None, Some(3.0)), Instant::now());
        for _ in 0..1000 {
            rollback.record("a", None, Some(FAST), now);
            rollback.record("b", None, Some(FAST), now);
            rollback.record("b", None, None, now);
        }
        assert_eq!(rollback.reason(), None);
        let both = self::rollback(Some(0.1), None);
        (0..200).for_each(|_| both.record("b", Some(Code::Unavailable), None, now));
        assert!(both.reason().is_some(), "their failures are");
    }

    #[test]
    fn bucket_is_within_an_eighth_of_the_time() {
        for micros in [8, 9, 100, 1_000, 12_345, 1_000_000, 3_600_000_000] {
            let low = lower_bound(bucket(Duration::from_micros(micros)));
            assert!(low <= micros && micros < low + low / 8 + 1, "{micros} {low}");
        }
        assert!(bucket(Duration::MAX) < BUCKETS && bucket(Duration::ZERO) == 0);
    }
}

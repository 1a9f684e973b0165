use std::time::Duration;

/// Limit of failures per number of calls, assuming that all take the same time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CostLimit {
    pub(super) window: u32,
    pub(super) share: f64,
}

impl CostLimit {
    fn failures(&self) -> f64 {
        f64::from(self.window) * self.share
    }

    /// Factor by which each call reduces the weight of the previous ones: after a window it is almost zero.
    fn smoothing(&self) -> f64 {
        EPSILON.powf(1.0 / f64::from(self.window.max(1)))
    }
}

/// Cost of failures in time, computed as in brpc (`circuit_breaker.cpp`, `EmaErrorRecorder`): a moving average that
/// successes pay off. A slow failure costs more, at most twice the usual latency.
#[derive(Debug)]
pub(super) struct EmaErrorCost {
    smoothing: f64,
    /// In microseconds; zero before the first success.
    latency: f64,
    cost: f64,
    /// Number of calls until the first window is full.
    calls: u32,
    failures: u32,
}

impl EmaErrorCost {
    pub(super) fn new(limit: &CostLimit) -> Self {
        Self { smoothing: limit.smoothing(), latency: 0.0, cost: 0.0, calls: 0, failures: 0 }
    }

    /// Records the end of a call. Returns whether failures have cost too much.
    pub(super) fn record(&mut self, limit: &CostLimit, failed: bool, latency: Duration) -> bool {
        let micros = latency.as_secs_f64() * 1e6;
        let is_too_much = match failed {
            true => self.charge(limit, micros),
            false => {
                self.decay(micros);
                false
            }
        };
        if self.calls >= limit.window {
            return is_too_much;
        }
        // The average is not meaningful yet.
        self.calls += 1;
        self.failures += u32::from(failed);
        f64::from(self.failures) >= limit.failures() && failed
    }

    fn charge(&mut self, limit: &CostLimit, micros: f64) -> bool {
        let most = if self.latency > 0.0 { 2.0 * self.latency } else { f64::INFINITY };
        self.cost += micros.min(most);
        let allowed_cost = self.latency * limit.failures() * (1.0 + EPSILON);
        self.latency > 0.0 && self.cost > allowed_cost
    }

    fn decay(&mut self, micros: f64) {
        self.latency = match self.latency {
            0.0 => micros,
            before => before * self.smoothing + micros * (1.0 - self.smoothing),
        };
        self.cost *= self.smoothing;
        if self.cost < NEGLIGIBLE {
            self.cost = 0.0;
        }
    }
}

/// brpc `circuit_breaker.cpp`, `circuit_breaker_epsilon_value`.
const EPSILON: f64 = 0.02;

/// In microseconds.
const NEGLIGIBLE: f64 = 500.0;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: CostLimit = CostLimit { window: 100, share: 0.1 };

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn ledger_after_a_full_window() -> EmaErrorCost {
        let mut ledger = EmaErrorCost::new(&LIMIT);
        (0..100).for_each(|_| assert!(!ledger.record(&LIMIT, false, millis(10))));
        ledger
    }

    #[test]
    fn failures_are_counted_until_the_window_is_full() {
        let mut ledger = EmaErrorCost::new(&LIMIT);
        assert_eq!((1..100).find(|_| ledger.record(&LIMIT, true, millis(1))), Some(10));
    }

    #[test]
    fn failures_cost_their_latency_up_to_twice_the_average() {
        // Ten failures of the usual latency are tolerated, plus two percent.
        let mut ledger = ledger_after_a_full_window();
        assert_eq!((1..100).find(|_| ledger.record(&LIMIT, true, millis(10))), Some(11));
        let mut ledger = ledger_after_a_full_window();
        assert_eq!((1..100).find(|_| ledger.record(&LIMIT, true, millis(10_000))), Some(6));
        // Quick failures are cheap.
        let mut ledger = ledger_after_a_full_window();
        assert_eq!((1..1000).find(|_| ledger.record(&LIMIT, true, millis(1))), Some(103));
    }

    #[test]
    fn successes_reduce_the_failure_cost() {
        let mut ledger = ledger_after_a_full_window();
        for n in 0..10_000 {
            assert!(
                !ledger.record(&LIMIT, n % 20 == 0, millis(10)),
                "{n}: one of twenty failures is tolerated"
            );
        }
        let tripped = (0..10_000).any(|n| ledger.record(&LIMIT, n % 3 == 0, millis(10)));
        assert!(tripped, "one of three is not");
    }
}

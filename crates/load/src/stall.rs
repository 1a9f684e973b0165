//! Response times of a server that stalls regularly, as an open loop must measure them.
//!
//! A server stalls for `stall` at the start of every `period`, and the load is `utilization` of its capacity. A call that
//! arrives while the server stalls waits for the rest of the stall, and behind those that wait already. Over whole periods
//! the share of calls that wait longer than x is (stall − x) / ((1 − utilization) · period).

use std::time::Duration;

/// A server that stalls regularly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stalls {
    /// Length of a stall.
    pub stall: Duration,
    /// Time from the start of a stall to the start of the next.
    pub period: Duration,
    /// Share of the server's capacity that the load uses, from 0 to below 1.
    pub utilization: f64,
}

impl Stalls {
    /// The waiting time below which this share of the calls stays.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let period = self.period.as_secs_f64();
        let waiting = self.stall.as_secs_f64() - (1.0 - quantile) * (1.0 - self.utilization) * period;
        Duration::from_secs_f64(waiting.max(0.0))
    }

    /// The mean waiting time.
    pub fn mean(&self) -> Duration {
        let (stall, period) = (self.stall.as_secs_f64(), self.period.as_secs_f64());
        Duration::from_secs_f64(stall * stall / (2.0 * period * (1.0 - self.utilization)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_agree_with_the_integral() {
        let idle =
            Stalls { stall: Duration::from_secs(1), period: Duration::from_secs(10), utilization: 0.0 };
        let millis = |quantile| idle.quantile(quantile).as_secs_f64() * 1e3;
        for (quantile, expected) in [(0.5, 0.0), (0.95, 500.0), (0.99, 900.0), (0.999, 990.0)] {
            assert!((millis(quantile) - expected).abs() < 1e-6, "{quantile}");
        }
        let sum: f64 = (0..100_000).map(|n| millis((f64::from(n) + 0.5) / 1e5)).sum();
        assert!((sum / 1e5 - idle.mean().as_secs_f64() * 1e3).abs() < 0.01);
        let half = Stalls { utilization: 0.5, ..idle };
        assert_eq!(
            (half.quantile(0.9), half.quantile(0.99)),
            (Duration::from_millis(500), Duration::from_millis(950))
        );
    }
}

//! Comparison of what was measured with what is known.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use polyrpc_load::{Outcome, Verdict};

use crate::bench::wake_ups::WakeUps;
use crate::terminal::{Painter, ShortDuration};

/// A comparison of what was measured with what is known.
#[derive(Debug)]
pub(in crate::bench) struct Check {
    pub(in crate::bench) what: String,
    pub(in crate::bench) expected: String,
    pub(in crate::bench) measured: String,
    pub(in crate::bench) passed: bool,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paint = Painter::for_stdout();
        let result = if self.passed { paint.green("ok") } else { paint.red("FAILED") };
        write!(
            f,
            "  {:<10}  expected {:<25}  measured {:<20}  {result}",
            self.what, self.expected, self.measured
        )
    }
}

impl Check {
    /// A generator that was delayed must notice, if it was the machine that delayed it.
    pub(super) fn from_verdict(outcome: &Outcome, noise: WakeUps) -> Self {
        let is_noisy = noise.late_share() > NOISY;
        let is_delayed = matches!(outcome.verdict, Verdict::GeneratorSaturated { .. });
        Self {
            what: "verdict".to_owned(),
            expected: match is_noisy {
                true => format!("any: {:.1} % noise", noise.late_share() * 100.0),
                false => "valid".to_owned(),
            },
            measured: outcome.verdict.name().to_owned(),
            passed: outcome.verdict.is_valid() || is_noisy && is_delayed,
        }
    }

    /// Passes anyway if the machine delayed another thread too.
    #[cfg(target_os = "linux")]
    pub(super) fn unless_noisy(self, noise: WakeUps) -> Self {
        match self.passed || noise.late_share() <= NOISY {
            true => self,
            false => {
                let expected = format!("{}, or {:.1} % noise", self.expected, noise.late_share() * 100.0);
                Self { expected, passed: true, ..self }
            }
        }
    }

    /// Compares a time with the bounds of the exact one. If the machine delays programs, calls take longer than they should,
    /// and never less: a tool that leaves out calls is noticed nevertheless.
    pub(in crate::bench) fn from_times(
        what: &str,
        exact: RangeInclusive<Duration>,
        measured: Duration,
        noise: WakeUps,
    ) -> Self {
        let tolerance = TOLERANCE + exact.end().mul_f64(0.02);
        let is_noisy = noise.late_share() > NOISY;
        Self {
            what: what.to_owned(),
            expected: match is_noisy {
                true => format!("at least {} - {}", ShortDuration(*exact.start()), ShortDuration(tolerance)),
                false => format!("{} ± {}", ShortDuration(*exact.end()), ShortDuration(tolerance)),
            },
            measured: ShortDuration(measured).to_string(),
            passed: measured + tolerance >= *exact.start()
                && (is_noisy || measured <= *exact.end() + tolerance),
        }
    }
}

/// Deviation that is due to the machine: the times of signals, and the backlog of a stall.
const TOLERANCE: Duration = Duration::from_millis(5);
/// Share of late sleeps of another thread from which the machine delays programs.
const NOISY: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_excuses_long_times_but_no_short_ones() {
        let millis = Duration::from_millis;
        let passes = |measured, late| {
            let noise = WakeUps { sleeps: 100, late };
            Check::from_times("p99", millis(100)..=millis(110), millis(measured), noise).passed
        };
        assert_eq!(
            [93, 95, 117, 118, 500].map(|measured| passes(measured, 0)),
            [true, true, true, false, false]
        );
        assert_eq!(
            [92, 93, 117, 118, 500].map(|measured| passes(measured, 50)),
            [false, true, true, true, true]
        );
    }
}

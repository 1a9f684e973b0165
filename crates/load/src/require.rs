//! Conditions that a run must meet.

use std::fmt;
use std::str::FromStr;

use hdrhistogram::Histogram;

use crate::outcome::Outcome;
use crate::schedule::{Rate, duration};

/// Conditions on the results of a run: `p99<5ms,errors<0.1%,rate>=19k`.
///
/// A condition compares a quantity by `<`, `<=`, `>` or `>=` with a value:
///
/// | quantity | value |
/// |---|---|
/// | `p50`, `p99`, `p99.9` and so on, `mean`, `max` of the response time of successful calls | duration |
/// | the same after `service.`, `lag.` or `all.`: service time, lag, response time including failed calls | duration |
/// | `errors`: calls that failed or were not answered | number, or a share as in `0.1%` |
/// | `rate`: successful calls per second | rate |
#[derive(Debug, Clone, PartialEq)]
pub struct Requirements(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    text: String,
    quantity: Quantity,
    comparison: Comparison,
    /// In nanoseconds, calls, a share or calls per second.
    bound: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Quantity {
    Time(Times, Statistic),
    ErrorCount,
    ErrorRate,
    Rate,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Times {
    Response,
    ResponseOfAll,
    Service,
    Lag,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Statistic {
    Quantile(f64),
    Mean,
    Max,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// A condition and the measured value.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedCondition {
    /// The condition as it was written.
    pub condition: String,
    /// The measured value, in the unit of the condition.
    pub measured: String,
    /// Whether it is met. A quantile that needs more calls than were made is not met.
    pub is_met: bool,
}

impl Requirements {
    /// Compares each condition with the results.
    pub fn check(&self, outcome: &Outcome) -> Vec<CheckedCondition> {
        self.0.iter().map(|requirement| requirement.check(outcome)).collect()
    }

    /// Whether all conditions are met.
    pub fn are_met(&self, outcome: &Outcome) -> bool {
        self.check(outcome).iter().all(|checked| checked.is_met)
    }
}

impl Requirement {
    fn check(&self, outcome: &Outcome) -> CheckedCondition {
        let measured = self.quantity.measure(outcome);
        let is_met = measured.is_some_and(|measured| match self.comparison {
            Comparison::Less => measured < self.bound,
            Comparison::AtMost => measured <= self.bound,
            Comparison::Greater => measured > self.bound,
            Comparison::AtLeast => measured >= self.bound,
        });
        let measured = measured.map_or_else(|| "too few calls".to_owned(), |value| self.quantity.show(value));
        CheckedCondition { condition: self.text.clone(), measured, is_met }
    }
}

impl Quantity {
    fn measure(self, outcome: &Outcome) -> Option<f64> {
        match self {
            Self::Time(times, statistic) => statistic.value(&match times {
                Times::Response => outcome.response(),
                Times::ResponseOfAll => outcome.response_of_all(),
                Times::Service => outcome.service.clone(),
                Times::Lag => outcome.lag.clone(),
            }),
            Self::ErrorCount => Some((outcome.counts.failed + outcome.counts.unanswered) as f64),
            Self::ErrorRate => Some(outcome.error_rate()),
            Self::Rate => Some(outcome.calls_per_second()),
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Time(..) => format!("{:.3?}", std::time::Duration::from_nanos(value as u64)),
            Self::ErrorCount => format!("{value}"),
            Self::ErrorRate => format!("{:.3} %", value * 100.0),
            Self::Rate => format!("{value:.1}/s"),
        }
    }
}

impl Statistic {
    fn value(self, histogram: &Histogram<u64>) -> Option<f64> {
        match self {
            _ if histogram.is_empty() => None,
            Self::Mean => Some(histogram.mean()),
            Self::Max => Some(histogram.max() as f64),
            Self::Quantile(quantile) => {
                // The share beyond the quantile is too small by less than this, since decimals such as 0.9 are
                // rounded: of 10 calls exactly one is beyond p90, and not 0.9999999999999998.
                let beyond = 1.0 - quantile + f64::EPSILON;
                let is_known = histogram.len() as f64 * beyond >= 1.0;
                is_known.then(|| histogram.value_at_quantile(quantile) as f64)
            }
        }
    }
}

impl FromStr for Requirements {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let each = text.split(',').map(|condition| condition.trim().parse());
        each.collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a condition: expected p99<5ms, service.p50<=1ms, errors<0.1%, rate>=20k and the like"
            )
        };
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (name, rest) = text.split_at(at);
        let (comparison, value) = match rest.strip_prefix("<=").map(|value| (Comparison::AtMost, value)) {
            Some(found) => found,
            None => match rest.strip_prefix(">=") {
                Some(value) => (Comparison::AtLeast, value),
                None if rest.starts_with('<') => (Comparison::Less, &rest[1..]),
                None => (Comparison::Greater, &rest[1..]),
            },
        };
        let value = value.trim();
        let (quantity, bound) = match name.trim() {
            "errors" => match value.strip_suffix('%') {
                Some(share) => {
                    (Quantity::ErrorRate, share.trim().parse::<f64>().map_err(|_| wrong())? / 100.0)
                }
                None => (Quantity::ErrorCount, value.parse::<u64>().map_err(|_| wrong())? as f64),
            },
            "rate" => (Quantity::Rate, value.parse::<Rate>()?.calls_per_second()),
            name => {
                let quantity = times(name).ok_or_else(wrong)?;
                (quantity, duration(value)?.as_nanos() as f64)
            }
        };
        Ok(Self { text: text.to_owned(), quantity, comparison, bound })
    }
}

fn times(name: &str) -> Option<Quantity> {
    let (times, statistic) = match name.split_once('.') {
        Some(("service", statistic)) => (Times::Service, statistic),
        Some(("lag", statistic)) => (Times::Lag, statistic),
        Some(("all", statistic)) => (Times::ResponseOfAll, statistic),
        _ => (Times::Response, name),
    };
    let statistic = match statistic {
        "mean" => Statistic::Mean,
        "max" => Statistic::Max,
        quantile => {
            let percent: f64 = quantile.strip_prefix('p')?.parse().ok()?;
            Statistic::Quantile(Some(percent).filter(|it| (0.0..100.0).contains(it))? / 100.0)
        }
    };
    Some(Quantity::Time(times, statistic))
}

impl fmt::Display for CheckedCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = if self.is_met { "met" } else { "NOT MET" };
        write!(f, "{} {met}: {}", self.condition, self.measured)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::engine::record::{Counts, histogram};
    use crate::outcome::MethodOutcome;
    use crate::process::Usage;
    use crate::verdict::Verdict;

    /// Calls of 1 ms, some of 20 ms, and failed ones of 1 s.
    pub(crate) fn outcome(fast: u64, slow: u64, failed: u64) -> Outcome {
        let mut method = MethodOutcome {
            response: histogram(),
            failed: histogram(),
            errors: BTreeMap::new(),
            reasons: BTreeMap::new(),
        };
        method.response.record_n(1_000_000, fast).unwrap();
        method.response.record_n(20_000_000, slow).unwrap();
        method.failed.record_n(1_000_000_000, failed).unwrap();
        let counts = Counts {
            planned: fast + slow + failed,
            sent: fast + slow + failed,
            succeeded: fast + slow,
            failed,
            ended_in_window: fast + slow + failed,
            ..Counts::default()
        };
        let usage = Usage { pid: 1, cpu: Duration::from_secs(1), memory: 0, memory_peak: 0 };
        Outcome {
            opened: None,
            window: Duration::from_secs(1),
            counts,
            service: method.response.clone(),
            methods: vec![method],
            lag: histogram(),
            own_lag: histogram(),
            seconds: Vec::new(),
            verdict: Verdict::Valid,
            interrupted: false,
            lost: None,
            generator: usage,
            server: None,
        }
    }

    #[test]
    fn conditions_are_compared_with_the_results() {
        let outcome = outcome(985, 5, 10);
        for (text, is_met) in [
            ("p99<5ms", true),
            ("p99.8 < 5ms", false),
            ("p50<=1.01ms,max<21ms", true),
            ("all.p99.9<5ms", false),
            ("service.mean<2ms", true),
            ("errors<=10", true),
            ("errors<1%", false),
            ("errors<=1%", true),
            ("rate>=990", true),
            ("rate>1k", false),
            ("p99.99<1h", false),
        ] {
            let requirements: Requirements = text.parse().unwrap();
            assert_eq!(requirements.are_met(&outcome), is_met, "{text}: {:?}", requirements.check(&outcome));
        }
    }

    #[test]
    fn quantile_is_known_from_the_first_call_beyond_it_on() {
        for (quantile, calls) in
            [("p50", 2), ("p90", 10), ("p95", 20), ("p99", 100), ("p99.9", 1_000), ("p99.99", 10_000)]
        {
            let requirements: Requirements = format!("{quantile}<5ms").parse().unwrap();
            assert!(requirements.are_met(&outcome(calls, 0, 0)), "{quantile} of {calls} calls");
            let checked = requirements.check(&outcome(calls - 1, 0, 0));
            assert_eq!(checked[0].measured, "too few calls", "{quantile} of {} calls", calls - 1);
        }
    }

    #[test]
    fn invalid_conditions_are_rejected() {
        for wrong in
            ["", "p99", "p99<", "p99<5", "p100<1s", "q99<1s", "errors<x", "rate>0", "lag.p<1s", "p99=5ms"]
        {
            let parsed = wrong.parse::<Requirements>();
            // A plain number is seconds, as everywhere.
            assert_eq!(parsed.is_err(), wrong != "p99<5", "{wrong}: {parsed:?}");
        }
    }
}

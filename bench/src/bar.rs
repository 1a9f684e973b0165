//! A bar: what a figure must come to.

use std::fmt;

use serde::Serialize;

/// A limit, and on which side of it a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// Of the floor's calls per second, at least.
    RatioAtLeast(f64),
    /// Of another's CPU time a call, at most.
    RatioAtMost(f64),
    /// Microseconds of CPU a call, client and server together, at most.
    CpuAtMost(f64),
    /// Milliseconds of latency, at most.
    MillisAtMost(f64),
    /// Allocations, at most.
    AllocationsAtMost(f64),
    /// KiB of resident memory a connection, at most.
    KibAtMost(f64),
}

/// A figure and its limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// `None` if it could not be measured.
    pub(crate) value: Option<f64>,
    pub(crate) limit: Limit,
    /// Whether every run it is made of was free of errors.
    pub(crate) clean: bool,
}

impl Bar {
    /// Whether the limit is kept, by a figure that was measured without an error.
    pub(crate) fn is_ok(&self) -> bool {
        let kept = self.value.is_some_and(|value| match self.limit {
            Limit::RatioAtLeast(limit) => value >= limit,
            Limit::RatioAtMost(limit)
            | Limit::CpuAtMost(limit)
            | Limit::MillisAtMost(limit)
            | Limit::AllocationsAtMost(limit)
            | Limit::KibAtMost(limit) => value <= limit,
        });
        kept && self.clean
    }
}

/// `bar <name> <value> <unit> limit <limit> ok|short`
impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, limit) = match self.limit {
            Limit::RatioAtLeast(limit) | Limit::RatioAtMost(limit) => ("ratio", limit),
            Limit::MillisAtMost(limit) => ("ms", limit),
            Limit::CpuAtMost(limit) => ("µs/call", limit),
            Limit::AllocationsAtMost(limit) => ("allocations", limit),
            Limit::KibAtMost(limit) => ("KiB", limit),
        };
        let value = self.value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let verdict = if self.is_ok() { "ok" } else { "short" };
        write!(f, "bar {} {value} {unit} limit {limit:.2} {verdict}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_has_a_lower_bound_and_cost_an_upper_bound() {
        assert_eq!(line(Some(0.7), Limit::RatioAtLeast(0.7)), "bar b 0.700 ratio limit 0.70 ok");
        assert_eq!(line(Some(0.69), Limit::RatioAtLeast(0.7)), "bar b 0.690 ratio limit 0.70 short");
        assert_eq!(line(Some(2.0), Limit::CpuAtMost(2.2)), "bar b 2.000 µs/call limit 2.20 ok");
        assert_eq!(line(Some(4.5), Limit::KibAtMost(4.0)), "bar b 4.500 KiB limit 4.00 short");
    }

    #[test]
    fn missing_or_erroneous_figure_misses_the_bar() {
        assert_eq!(line(None, Limit::RatioAtLeast(0.7)), "bar b - ratio limit 0.70 short");
        let unclean =
            Bar { name: "b".into(), value: Some(1.0), limit: Limit::RatioAtLeast(0.7), clean: false };
        assert_eq!(unclean.to_string(), "bar b 1.000 ratio limit 0.70 short");
    }

    fn line(value: Option<f64>, limit: Limit) -> String {
        Bar { name: "b".into(), value, limit, clean: true }.to_string()
    }
}

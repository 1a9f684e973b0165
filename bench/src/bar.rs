//! A bar: the limit that a figure must meet.

use std::fmt;

use serde::Serialize;

/// A limit, and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// Minimum share of the floor's calls per second.
    RatioAtLeast(f64),
    /// Maximum ratio of the CPU time per call to another's.
    RatioAtMost(f64),
    /// Maximum CPU time per call in microseconds, client and server together.
    CpuAtMost(f64),
    /// Maximum latency in milliseconds.
    MillisAtMost(f64),
    /// Maximum number of allocations.
    AllocationsAtMost(f64),
    /// Maximum number of KiB: of resident memory per connection unless the bar says otherwise.
    KibAtMost(f64),
}

/// A figure and its limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// `None` if it could not be measured.
    pub(crate) value: Option<f64>,
    pub(crate) limit: Limit,
    /// Whether all its runs were free of errors.
    pub(crate) clean: bool,
}

impl Bar {
    /// Whether a figure measured without errors meets the limit.
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

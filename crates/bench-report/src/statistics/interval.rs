//! A confidence interval.

use serde::{Deserialize, Serialize};

/// A confidence interval of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that such an interval contains the true value, at least: 0.95 for 95 %.
    pub confidence: f64,
}

impl Interval {
    /// Whether `value` lies within, ends included.
    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether all of this interval lies within `low..=high`.
    pub fn is_within(self, low: f64, high: f64) -> bool {
        low <= self.low && self.high <= high
    }

    /// The interval of a figure's monotonically increasing function.
    pub(crate) fn map(self, function: impl Fn(f64) -> f64) -> Self {
        Self { low: function(self.low), high: function(self.high), confidence: self.confidence }
    }
}

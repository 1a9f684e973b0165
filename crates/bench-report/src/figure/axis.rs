//! Scales and their ticks.

use crate::format::{Count, Nanoseconds, percentile};

/// A mapping of values to 0..=1, with ticks.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    kind: Kind,
    low: f64,
    high: f64,
    unit: Unit,
}

/// What the labels show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Nanoseconds,
    Count,
    Seconds,
    Ratio,
    Percentile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Linear,
    Log,
    /// Quantiles, by the logarithm of the share above them.
    Nines,
}

impl Axis {
    /// From 0, or from the lowest value if it is negative, to the highest value.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>, unit: Unit) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        let low = low.min(0.0);
        let high = if high > low { high } else { low + 1.0 };
        let step = step(high - low, 4.0);
        Self { kind: Kind::Linear, low: (low / step).floor() * step, high: (high / step).ceil() * step, unit }
    }

    /// From the lowest to the highest value, without rounding.
    pub(super) fn exact(low: f64, high: f64, unit: Unit) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { kind: Kind::Linear, low, high, unit }
    }

    /// Logarithmic, with a little space at both ends; values that are not positive are ignored.
    pub(super) fn log(values: impl IntoIterator<Item = f64>, unit: Unit) -> Self {
        let (low, high) = extent(values.into_iter().filter(|value| *value > 0.0)).unwrap_or((1.0, 10.0));
        let low = steps_of_log().rev().find(|step| *step <= low * 0.95).unwrap_or(low);
        let high = steps_of_log().find(|step| *step >= high * 1.02).unwrap_or(high);
        let high = if high > low { high } else { low * 10.0 };
        Self { kind: Kind::Log, low, high, unit }
    }

    /// Quantiles from 0 to `highest`, which is below 1.
    pub(super) fn nines(highest: f64) -> Self {
        Self { kind: Kind::Nines, low: 0.0, high: highest.clamp(0.9, 1.0 - 1e-9), unit: Unit::Percentile }
    }

    /// Ratios around 1, logarithmic, from half or double a step beyond the extremes.
    pub(super) fn ratio(values: impl IntoIterator<Item = f64>) -> Self {
        let farthest = values
            .into_iter()
            .filter(|value| value.is_finite() && *value > 0.0)
            .map(|value| value.ln().abs())
            .fold(0.04, f64::max);
        let reach = (farthest * 1.08).exp();
        Self { kind: Kind::Log, low: 1.0 / reach, high: reach, unit: Unit::Ratio }
    }

    /// Position of a value as a fraction of the axis; beyond the ends it stays at them.
    pub(super) fn position(&self, value: f64) -> f64 {
        let (low, high, value) = match self.kind {
            Kind::Linear => (self.low, self.high, value),
            Kind::Log => (self.low.ln(), self.high.ln(), value.max(f64::MIN_POSITIVE).ln()),
            Kind::Nines => (nines(self.low), nines(self.high), nines(value)),
        };
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// Values with their labels, in ascending order, at most about `max_ticks`.
    pub(super) fn ticks(&self, max_ticks: usize) -> Vec<(f64, String)> {
        let values = match self.kind {
            Kind::Linear => self.linear_ticks(max_ticks),
            Kind::Log if self.unit == Unit::Ratio => self.ratio_ticks(max_ticks),
            Kind::Log => self.log_ticks(max_ticks),
            Kind::Nines => self.quantile_ticks(),
        };
        values.into_iter().map(|value| (value, self.label(value))).collect()
    }

    fn linear_ticks(&self, max_ticks: usize) -> Vec<f64> {
        let step = step(self.high - self.low, max_ticks as f64);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).take(2 * max_ticks + 2).map(|count| count as f64 * step).collect()
    }

    fn log_ticks(&self, max_ticks: usize) -> Vec<f64> {
        let all: Vec<_> =
            steps_of_log().filter(|step| (self.low * 0.999..=self.high * 1.001).contains(step)).collect();
        if all.len() <= max_ticks {
            return all;
        }
        let is_decade = |value: &f64| (value.log10() - value.log10().round()).abs() < 1e-9;
        let decades: Vec<_> = all.iter().copied().filter(is_decade).collect();
        if decades.len() < 2 {
            return [all.first(), all.last()].into_iter().flatten().copied().collect();
        }
        decades.iter().copied().step_by(decades.len().div_ceil(max_ticks)).collect()
    }

    fn ratio_ticks(&self, max_ticks: usize) -> Vec<f64> {
        // One part more than ticks: 1 is one of them, so that the ends may lie between two.
        let step = step(self.high - self.low, max_ticks as f64 + 1.0);
        let first = ((self.low - 1.0) / step).ceil() as i64;
        let last = ((self.high - 1.0) / step).floor() as i64;
        (first..=last).take(2 * max_ticks + 2).map(|count| 1.0 + count as f64 * step).collect()
    }

    fn quantile_ticks(&self) -> Vec<f64> {
        let all = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999];
        all.into_iter().filter(|quantile| *quantile <= self.high).collect()
    }

    /// A value as the ticks show it.
    pub(super) fn label(&self, value: f64) -> String {
        match self.unit {
            Unit::Nanoseconds => short_time(value),
            Unit::Count => short_count(value),
            Unit::Seconds => format!("{} s", format_decimal(value)),
            Unit::Ratio => format_decimal((value * 1000.0).round() / 1000.0),
            Unit::Percentile if value == 0.0 => "min".to_owned(),
            Unit::Percentile => percentile(value),
        }
    }

    /// A value in full, for tooltips.
    pub(super) fn full_label(&self, value: f64) -> String {
        match self.unit {
            Unit::Nanoseconds => Nanoseconds(value).to_string(),
            Unit::Count => Count(value).to_string(),
            Unit::Ratio => format!("{value:.3}"),
            _ => self.label(value),
        }
    }
}

fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile.clamp(0.0, 1.0 - 1e-12)).log10()
}

fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| value.is_finite()).fold(None, |extent, value| {
        let (low, high) = extent.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}

/// The step of 1, 2 or 5 times a power of ten that divides `extent` into at most `count` parts.
fn step(extent: f64, count: f64) -> f64 {
    let least = extent / count.max(1.0);
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(least)
}

fn steps_of_log() -> impl DoubleEndedIterator<Item = f64> {
    (-3..16).flat_map(|power| [1.0, 2.0, 5.0].map(|digit: f64| digit * 10_f64.powi(power)))
}

fn short_time(nanos: f64) -> String {
    let (value, unit) = match nanos.abs() {
        0.0 => return "0".to_owned(),
        ..999.9 => (nanos, "ns"),
        ..999.9e3 => (nanos / 1e3, "µs"),
        ..999.9e6 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    format!("{} {unit}", format_decimal(value))
}

fn short_count(value: f64) -> String {
    match value.abs() {
        ..9_999.9 => format_decimal(value),
        ..999_999.9 => format!("{}k", format_decimal(value / 1e3)),
        _ => format!("{}M", format_decimal(value / 1e6)),
    }
}

/// Up to three decimals, without zeros at the end.
fn format_decimal(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, max_ticks: usize) -> Vec<String> {
        axis.ticks(max_ticks).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&Axis::linear([0.0, 93.0], Unit::Count), 5), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&Axis::linear([183_000.0], Unit::Count), 4), ["0", "50k", "100k", "150k", "200k"]);
        assert_eq!(
            labels(&Axis::log([83e3, 4e6], Unit::Nanoseconds), 7),
            ["50 µs", "100 µs", "200 µs", "500 µs", "1 ms", "2 ms", "5 ms"]
        );
        assert_eq!(
            labels(&Axis::log([83e3, 4e9], Unit::Nanoseconds), 6),
            ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]
        );
        assert_eq!(labels(&Axis::nines(0.9995), 6), ["min", "p50", "p90", "p99", "p99.9"]);
        assert_eq!(labels(&Axis::ratio([0.97, 1.04]), 4), ["0.96", "0.98", "1", "1.02", "1.04"]);
        assert_eq!(labels(&Axis::exact(0.0, 12.5, Unit::Seconds), 5), ["0 s", "5 s", "10 s"]);
    }

    #[test]
    fn values_are_placed_between_the_ends() {
        // From 1 µs to 1 ms.
        let log = Axis::log([1.1e3, 0.9e6], Unit::Nanoseconds);
        assert!((log.position(1e4) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(log.position(0.0), 0.0);
        let nines = Axis::nines(0.9999);
        assert!((nines.position(0.99) - 0.5).abs() < 1e-12);
        assert_eq!(nines.position(1.0), 1.0);
        let ratio = Axis::ratio([2.0]);
        assert!((ratio.position(1.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn axes_without_values_or_with_one_are_drawn() {
        for axis in [
            Axis::linear([], Unit::Count),
            Axis::linear([f64::NAN], Unit::Count),
            Axis::linear([0.0], Unit::Count),
            Axis::log([], Unit::Nanoseconds),
            Axis::log([0.0, -1.0, 5.0], Unit::Nanoseconds),
            Axis::log([1e300], Unit::Nanoseconds),
            Axis::ratio([]),
        ] {
            assert!(axis.ticks(5).len() < 20, "{axis:?}");
            assert!(axis.position(3.0).is_finite(), "{axis:?}");
        }
    }
}

//! Figures of a histogram as text.

use std::fmt;
use std::time::Duration;

use polyrpc_load::Histogram;

use crate::terminal::ShortDuration;

/// Microseconds. Percentiles that need more calls are absent: 20 calls have no slowest 1 %.
#[derive(Debug)]
pub(super) struct Latency {
    pub(super) min: Option<f64>,
    pub(super) mean: Option<f64>,
    pub(super) p10: Option<f64>,
    pub(super) p25: Option<f64>,
    pub(super) p50: Option<f64>,
    pub(super) p75: Option<f64>,
    pub(super) p90: Option<f64>,
    pub(super) p95: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) p99_9: Option<f64>,
    pub(super) p99_99: Option<f64>,
    pub(super) max: Option<f64>,
}

impl Latency {
    pub(super) fn new(latencies: &Histogram<u64>) -> Self {
        let calls = latencies.len();
        let at = |parts: u64| {
            // Number of calls beyond the percentile, on its shorter side.
            let beyond = calls.saturating_mul(parts.min(10_000 - parts)) / 10_000;
            (beyond > 0).then(|| micros(latencies.value_at_quantile(parts as f64 / 1e4)))
        };
        let of_any = |value: f64| (calls > 0).then_some(value);
        Self {
            min: of_any(micros(latencies.min())),
            mean: of_any(latencies.mean() / 1e3),
            p10: at(1_000),
            p25: at(2_500),
            p50: of_any(micros(latencies.value_at_quantile(0.5))),
            p75: at(7_500),
            p90: at(9_000),
            p95: at(9_500),
            p99: at(9_900),
            p99_9: at(9_990),
            p99_99: at(9_999),
            max: of_any(micros(latencies.max())),
        }
    }

    /// Percentiles that have enough calls.
    pub(super) fn percentiles(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("10", self.p10),
            ("25", self.p25),
            ("50", self.p50),
            ("75", self.p75),
            ("90", self.p90),
            ("95", self.p95),
            ("99", self.p99),
            ("99.9", self.p99_9),
            ("99.99", self.p99_99),
        ];
        all.into_iter().filter_map(|(name, micros)| Some((name, micros?)))
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, mean, p50, p90, p99, p99_9, p99_99, max, .. } = *self;
        let all = [
            ("p50", p50),
            ("p90", p90),
            ("p99", p99),
            ("p99.9", p99_9),
            ("p99.99", p99_99),
            ("fastest", min),
            ("mean", mean),
            ("slowest", max),
        ];
        let known = all.into_iter().filter_map(|(name, micros)| Some((name, micros?)));
        let listed: Vec<_> = known
            .map(|(name, micros)| format!("{name} {}", ShortDuration(Duration::from_secs_f64(micros / 1e6))))
            .collect();
        f.write_str(if listed.is_empty() { "none" } else { "" })?;
        f.write_str(&listed.join("  "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_reported_only_with_enough_calls() {
        let report_of = |calls: u64| {
            let mut histogram = Histogram::new(3).unwrap();
            (0..calls).for_each(|n| histogram.record(1000 + n).unwrap());
            Latency::new(&histogram).to_string()
        };
        let names = |text: &str| -> Vec<String> {
            text.split("  ").map(|part| part.split(' ').next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(report_of(0), "none");
        assert_eq!(names(&report_of(1)), ["p50", "fastest", "mean", "slowest"]);
        assert_eq!(names(&report_of(10)), ["p50", "p90", "fastest", "mean", "slowest"]);
        assert_eq!(names(&report_of(999)), ["p50", "p90", "p99", "fastest", "mean", "slowest"]);
        assert_eq!(names(&report_of(1000)), ["p50", "p90", "p99", "p99.9", "fastest", "mean", "slowest"]);
    }
}

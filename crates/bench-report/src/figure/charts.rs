//! The plots of a run.

use super::axis::{Axis, Unit};
use super::plot::{Line, Plot};
use super::svg::Svg;
use crate::format::Nanoseconds;
use crate::model::{Latency, Second, Step};

/// Quantiles of the response over the time of a run; seconds with errors are marked. `None` with fewer than two intervals.
pub fn latency_over_time(series: &[Second]) -> Option<Svg> {
    let seconds = join_neighbours(series)?;
    type Quantile = fn(&Second) -> Option<u64>;
    let quantiles: [(&str, Quantile); 3] =
        [("max", |second| second.max_ns), ("p99", |second| second.p99_ns), ("p50", |second| second.p50_ns)];
    let lines: Vec<_> = quantiles
        .into_iter()
        .map(|(name, quantile)| Line {
            name: name.to_owned(),
            points: seconds
                .iter()
                .filter_map(|second| Some((middle(second), quantile(second)? as f64)))
                .collect(),
            ..Line::default()
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    let values = lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let highest = values.clone().fold(0.0, f64::max);
    let plot = Plot {
        title: "Latency over time",
        summary: format!("{} intervals, the longest response took {}.", seconds.len(), Nanoseconds(highest)),
        y_name: "response",
        x_name: "time since the start",
        x: time_axis(&seconds),
        y: Axis::log(values, Unit::Nanoseconds),
        marks: marks_of_errors(&seconds),
        lines,
        limit: None,
    };
    Some(plot.draw())
}

/// Calls per second over the time of a run. `None` with fewer than two intervals.
pub fn rate_over_time(series: &[Second]) -> Option<Svg> {
    let seconds = join_neighbours(series)?;
    let per_second = |count: u64, second: &Second| count as f64 / second.length_s.max(1e-9);
    let stairs = |name: &str, value: &dyn Fn(&Second) -> Option<f64>| {
        let mut points: Vec<_> =
            seconds.iter().filter_map(|second| Some((second.start_s, value(second)?))).collect();
        let end = seconds
            .last()
            .zip(points.last())
            .map(|(second, (_, value))| (second.start_s + second.length_s, *value));
        points.extend(end);
        Line { name: name.to_owned(), points, is_stepped: true, ..Line::default() }
    };
    let mut lines = vec![stairs("calls/s", &|second| Some(second.rate()))];
    if seconds.iter().any(|second| second.sent.is_some_and(|sent| sent != second.succeeded)) {
        lines.push(stairs("sent/s", &|second| Some(per_second(second.sent?, second))));
    }
    if seconds.iter().any(|second| second.failed > 0) {
        lines.push(stairs("errors/s", &|second| Some(per_second(second.failed, second))));
    }
    let values = lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let plot = Plot {
        title: "Rate over time",
        summary: format!("{} intervals.", seconds.len()),
        y_name: "calls/s",
        x_name: "time since the start",
        x: time_axis(&seconds),
        y: Axis::linear(values, Unit::Count),
        lines,
        marks: None,
        limit: None,
    };
    Some(plot.draw())
}

/// The latency at each quantile up to the highest one with 10 samples above it; a band is its 95 % interval. `None` without
/// samples.
pub fn quantile_curve(latencies: &[(&str, &Latency)]) -> Option<Svg> {
    let lines: Vec<_> = latencies
        .iter()
        .filter(|(_, latency)| latency.count() > 0)
        .map(|(name, latency)| quantile_line(name, latency))
        .collect();
    let highest =
        lines.iter().filter_map(|line| line.points.last()).map(|(quantile, _)| *quantile).reduce(f64::max)?;
    let values = lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let longest = values.clone().fold(0.0, f64::max);
    let plot = Plot {
        title: "Latency by quantile",
        summary: format!("At the highest quantile shown it is {}.", Nanoseconds(longest)),
        y_name: "latency",
        x_name: "share of the calls that were at least as fast",
        x: Axis::nines(highest),
        y: Axis::log(values, Unit::Nanoseconds),
        lines,
        marks: None,
        limit: None,
    };
    Some(plot.draw())
}

fn quantile_line(name: &str, latency: &Latency) -> Line {
    let count = latency.count() as f64;
    let highest = 1.0 - (10.0 / count).min(1.0);
    // Evenly spaced on the axis.
    let nines = -(1.0 - highest).log10();
    let quantiles = (0..=POINTS).map(|n| 1.0 - 10_f64.powf(-nines * n as f64 / POINTS as f64));
    let mut line = Line { name: name.to_owned(), ..Line::default() };
    for quantile in quantiles {
        // The lowest value where the quantile is 0.
        let value = latency.histogram().value_at_quantile(quantile).max(1) as f64;
        line.points.push((quantile, value));
        if let Some(interval) = latency.quantile(quantile).and_then(|estimate| estimate.interval) {
            line.band.push((quantile, interval.low.max(1.0), interval.high));
        }
    }
    line
}

/// Latency at each rate that was tried. `limit_ns` is the limit of p99, if there is one. `None` with fewer than two steps.
pub fn latency_against_rate(steps: &[Step], limit_ns: Option<f64>) -> Option<Svg> {
    if steps.len() < 2 {
        return None;
    }
    let mut steps = steps.to_vec();
    steps.sort_by(|left, right| left.rate.total_cmp(&right.rate));
    let line = |name: &str, value: fn(&Step) -> u64| Line {
        name: name.to_owned(),
        points: steps.iter().map(|step| (step.rate, value(step) as f64)).collect(),
        has_dots: true,
        ..Line::default()
    };
    let lines = vec![line("p99", |step| step.p99_ns), line("p50", |step| step.p50_ns)];
    let values = lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value)).chain(limit_ns);
    let reached = steps.iter().filter(|step| step.is_met).map(|step| step.rate).fold(0.0, f64::max);
    let plot = Plot {
        title: "Latency against rate",
        summary: format!("{} rates, the highest one within the limits is {reached:.0} calls/s.", steps.len()),
        y_name: "response",
        x_name: "calls/s",
        x: Axis::linear(steps.iter().map(|step| step.rate), Unit::Count),
        y: Axis::log(values, Unit::Nanoseconds),
        marks: None,
        limit: limit_ns.map(|limit| ("limit".to_owned(), limit)),
        lines,
    };
    Some(plot.draw())
}

/// Values over the time of a run, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Pairs of a time in seconds and a value, by ascending time.
    pub points: Vec<(f64, f64)>,
}

/// Several values over the time of a run; `marks` are times with errors. The axis starts at 0. `None` if no value has two
/// points.
pub fn over_time(title: &str, unit: &str, values: &[Series], marks: &[f64]) -> Option<Svg> {
    let longest = values.iter().map(|one| one.points.len()).max().filter(|points| *points >= 2)?;
    let each = longest.div_ceil(MAX_INTERVALS).max(1);
    let highest_of =
        |chunk: &[(f64, f64)]| chunk.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
    let lines: Vec<_> = values
        .iter()
        .map(|one| Line {
            name: one.name.clone(),
            points: one.points.chunks(each).filter_map(highest_of).collect(),
            ..Line::default()
        })
        .collect();
    let times = || values.iter().flat_map(|one| one.points.iter().map(|(time, _)| *time));
    let heights = || lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let plot = Plot {
        title,
        summary: format!("The highest value is {:.0} {unit}.", heights().fold(0.0, f64::max)),
        y_name: unit,
        x_name: "time since the start",
        x: Axis::exact(times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max), Unit::Seconds),
        y: Axis::linear(heights(), Unit::Count),
        marks: (!marks.is_empty()).then(|| ("errors".to_owned(), marks.to_vec())),
        lines,
        limit: None,
    };
    Some(plot.draw())
}

fn middle(second: &Second) -> f64 {
    second.start_s + second.length_s / 2.0
}

fn time_axis(seconds: &[Second]) -> Axis {
    let start = seconds.first().map_or(0.0, |second| second.start_s);
    Axis::exact(start, seconds.last().map_or(1.0, |second| second.start_s + second.length_s), Unit::Seconds)
}

fn marks_of_errors(seconds: &[Second]) -> Option<(String, Vec<f64>)> {
    let positions: Vec<_> = seconds.iter().filter(|second| second.failed > 0).map(middle).collect();
    (!positions.is_empty()).then(|| ("errors".to_owned(), positions))
}

/// At most 300 intervals: neighbours are joined, and keep the highest of their quantiles. `None` with fewer than two.
fn join_neighbours(series: &[Second]) -> Option<Vec<Second>> {
    let each = series.len().div_ceil(MAX_INTERVALS).max(1);
    let joined: Vec<_> = series.chunks(each).filter_map(|chunk| chunk.iter().copied().reduce(join)).collect();
    (joined.len() >= 2).then_some(joined)
}

fn join(left: Second, right: Second) -> Second {
    Second {
        start_s: left.start_s,
        length_s: right.start_s + right.length_s - left.start_s,
        succeeded: left.succeeded.saturating_add(right.succeeded),
        failed: left.failed.saturating_add(right.failed),
        sent: left.sent.zip(right.sent).map(|(left, right)| left.saturating_add(right)),
        in_flight: right.in_flight,
        p50_ns: left.p50_ns.max(right.p50_ns),
        p90_ns: left.p90_ns.max(right.p90_ns),
        p99_ns: left.p99_ns.max(right.p99_ns),
        p999_ns: left.p999_ns.max(right.p999_ns),
        max_ns: left.max_ns.max(right.max_ns),
        lag_max_ns: left.lag_max_ns.max(right.lag_max_ns),
    }
}

const MAX_INTERVALS: usize = 300;
const POINTS: usize = 96;

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    fn second(at: u32) -> Second {
        Second {
            start_s: at.into(),
            length_s: 1.0,
            succeeded: 100,
            failed: u64::from(at == 7),
            p50_ns: Some(1_000_000),
            max_ns: Some(if at == 500 { 900_000_000 } else { 2_000_000 }),
            ..Second::default()
        }
    }

    #[test]
    fn long_series_is_joined_without_losing_its_peak() {
        let series: Vec<_> = (0..3600).map(second).collect();
        let joined = join_neighbours(&series).unwrap();
        assert_eq!(joined.len(), 300);
        assert_eq!(joined.iter().filter_map(|second| second.max_ns).max(), Some(900_000_000));
        assert_eq!(joined.iter().map(|second| second.succeeded).sum::<u64>(), 360_000);
        let svg = latency_over_time(&series).unwrap();
        assert!(svg.element().len() < 20_000 && svg.element().contains("900 ms"), "{}", svg.element().len());
        assert!(svg.element().contains(">errors</text>"));
        assert!(rate_over_time(&series).unwrap().element().contains("errors/s"));
        assert_eq!(latency_over_time(&series[..1]), None);
    }

    #[test]
    fn values_over_time_keep_their_peak_and_mark_errors() {
        let points: Vec<_> =
            (0..3600).map(|n| (f64::from(n), if n == 1801 { 900.0 } else { 10.0 })).collect();
        let memory = Series { name: "server".to_owned(), points };
        let svg = over_time("Memory", "MiB", std::slice::from_ref(&memory), &[12.5]).unwrap();
        assert!(svg.element().contains("900 MiB") && svg.element().len() < 20_000, "{}", svg.element().len());
        assert!(svg.element().contains(">errors</text>"));
        let short = Series { points: memory.points[..1].to_vec(), ..memory };
        assert_eq!(over_time("Memory", "MiB", &[short], &[]), None);
    }

    #[test]
    fn quantile_curve_ends_where_ten_samples_are_left() {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=10_000).for_each(|n| histogram.record(n * 1000).unwrap());
        let latency = Latency::new(histogram);
        let line = quantile_line("response", &latency);
        let (highest, value) = *line.points.last().unwrap();
        assert!((highest - 0.999).abs() < 1e-9 && (value / 9.99e6 - 1.0).abs() < 0.002, "{highest} {value}");
        assert!(quantile_curve(&[("response", &latency)]).unwrap().element().contains("p99.9"));
        let empty = Latency::new(Histogram::new(3).unwrap());
        assert_eq!(quantile_curve(&[("response", &empty)]), None);
        let mut one = Histogram::new(3).unwrap();
        one.record(5).unwrap();
        assert!(quantile_curve(&[("response", &Latency::new(one))]).is_some());
    }

    #[test]
    fn rates_are_plotted_in_ascending_order_with_the_limit() {
        let step = |rate: f64, p99_ns: u64| Step {
            planned_rate: rate,
            rate,
            p50_ns: 1000,
            p99_ns,
            is_met: p99_ns < 5000,
        };
        let svg = latency_against_rate(&[step(20e3, 9000), step(10e3, 2000)], Some(5e3)).unwrap();
        assert!(svg.element().contains("class=\"limit\"") && svg.element().contains("10000 calls/s"));
        assert_eq!(svg.element().matches("<circle").count(), 4);
        assert_eq!(latency_against_rate(&[step(1.0, 1)], None), None);
    }
}

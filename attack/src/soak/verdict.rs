//! The limits (bars) of a soak.

use serde::Serialize;

use super::sample::{AtRest, Sample, Usage};
use super::traffic::Ledger;
use super::trend::slope;

/// A bar, and the measured value.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) measured: String,
    pub(crate) limit: String,
    pub(crate) is_met: bool,
}

/// Growth of the memory after the warm-up, in bytes an hour.
const SLOPE: f64 = (1 << 20) as f64;
/// Minimum length of a window for a meaningful slope per hour; in a shorter one the total growth counts.
const WINDOW_S: f64 = 1800.0;
/// In a shorter window, nothing has reached a steady level yet: KCP conversations, for example, stay for a minute.
const SHORTEST_S: f64 = 120.0;
/// Growth over a shorter window.
const GROWTH: f64 = (8 << 20) as f64;
/// Growth of the number of descriptors, and of tasks, over the window, as a share of their number.
const FLAT: f64 = 0.1;
/// The same as an absolute number, for small counts.
const FLAT_COUNT: f64 = 16.0;

/// The samples after the warm-up: a third of the run, and at most ten minutes.
pub(crate) fn skip_warm_up(samples: &[Sample]) -> &[Sample] {
    let end = samples.last().map_or(0.0, |sample| sample.at_s);
    let warm_up = (end / 3.0).min(600.0);
    let first = samples.iter().position(|sample| sample.at_s >= warm_up).unwrap_or(samples.len());
    &samples[first..]
}

/// Compares everything with its bar. `load` are the samples under load.
pub(crate) fn bars(load: &[Sample], rest: &AtRest, calls: &Ledger) -> Vec<Bar> {
    let warm = skip_warm_up(load);
    let server = |value: fn(&Usage) -> usize| -> Vec<(f64, f64)> {
        warm.iter().map(|sample| (sample.at_s, value(&sample.server) as f64)).collect()
    };
    let client = |value: fn(&Usage) -> usize| -> Vec<(f64, f64)> {
        warm.iter().map(|sample| (sample.at_s, value(&sample.client) as f64)).collect()
    };
    vec![
        Bar {
            name: "failed calls",
            measured: format!(
                "{} of {}",
                calls.failed,
                calls.combinations.values().map(|one| one.made).sum::<u64>()
            ),
            limit: "0".to_owned(),
            is_met: calls.failed == 0,
        },
        every_way(calls),
        memory("the server's memory", &server(|usage| usage.resident)),
        memory("the clients' memory", &client(|usage| usage.resident)),
        flat_bar("the server's descriptors", &server(|usage| usage.descriptors)),
        flat_bar("the clients' descriptors", &client(|usage| usage.descriptors)),
        flat_bar("the server's tasks", &server(|usage| usage.tasks)),
        flat_bar("the clients' tasks", &client(|usage| usage.tasks)),
        at_rest(rest),
    ]
}

/// Without it a combination that is never called would pass.
fn every_way(calls: &Ledger) -> Bar {
    let expected = crate::cluster::combinations().len();
    let called = calls.combinations.values().filter(|one| one.made > one.failed).count();
    Bar {
        name: "combinations with an answered call",
        measured: called.to_string(),
        limit: format!("all {expected}"),
        is_met: called == expected,
    }
}

fn memory(name: &'static str, points: &[(f64, f64)]) -> Bar {
    let (window, slope) = (window(points), slope(points));
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let (measured, limit, is_met) = match window >= WINDOW_S {
        true => {
            (format!("{:+.2} MiB an hour", mib(slope * 3600.0)), "1 MiB an hour", slope * 3600.0 <= SLOPE)
        }
        false => (
            format!("{:+.2} MiB in {window:.0} s", mib(slope * window)),
            "8 MiB, since the window is below 30 minutes",
            slope * window <= GROWTH,
        ),
    };
    judge_growth(Bar { name, measured, limit: limit.to_owned(), is_met }, points)
}

fn flat_bar(name: &'static str, points: &[(f64, f64)]) -> Bar {
    let growth = slope(points) * window(points);
    let mean = points.iter().map(|point| point.1).sum::<f64>() / points.len().max(1) as f64;
    let limit = (mean * FLAT).max(FLAT_COUNT);
    let (measured, is_met) = (format!("{growth:+.1} of {mean:.0}"), growth <= limit);
    judge_growth(Bar { name, measured, limit: format!("{limit:+.0}"), is_met }, points)
}

/// The bar, unless the window is too short to judge growth. Without a measurement it is missed.
fn judge_growth(bar: Bar, points: &[(f64, f64)]) -> Bar {
    if window(points) < SHORTEST_S && points.len() >= 2 {
        let limit = format!("none, since the window is below {SHORTEST_S:.0} s");
        return Bar { limit, is_met: true, ..bar };
    }
    Bar { is_met: bar.is_met && points.len() >= 2, ..bar }
}

fn window(points: &[(f64, f64)]) -> f64 {
    points.first().zip(points.last()).map_or(0.0, |(first, last)| last.0 - first.0)
}

fn at_rest(rest: &AtRest) -> Bar {
    let AtRest { before, after, took_s } = rest;
    let change = |before: usize, after: usize| format!("{before} → {after}");
    Bar {
        name: "left after the last client",
        measured: format!(
            "{} connections, {} calls; server: descriptors {}, tasks {}; clients: descriptors {}, tasks {}; after {took_s:.0} s",
            after.connections,
            after.in_flight,
            change(before.server.descriptors, after.server.descriptors),
            change(before.server.tasks, after.server.tasks),
            change(before.client.descriptors, after.client.descriptors),
            change(before.client.tasks, after.client.tasks),
        ),
        limit: "nothing".to_owned(),
        is_met: rest.is_clean(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::traffic::Calls;

    /// Samples of this many seconds, whose memory grows by this many bytes a second.
    fn samples(seconds: u32, growth: f64) -> Vec<Sample> {
        let usage = |second: u32| Usage {
            resident: 50_000_000 + (growth * f64::from(second)) as usize,
            descriptors: 100 + (second % 7) as usize,
            tasks: 300,
        };
        let sample = |second| Sample {
            at_s: f64::from(second),
            server: usage(second),
            client: usage(second),
            ..Sample::default()
        };
        (0..seconds).map(sample).collect()
    }

    fn missed_bars(load: &[Sample], after: Sample, failed: u64) -> Vec<&'static str> {
        let mut calls = Ledger { failed, ..Ledger::default() };
        for combination in crate::cluster::combinations() {
            calls.combinations.insert(combination.name(), Calls { made: 1, ..Calls::default() });
        }
        let rest = AtRest { before: load[0], after, took_s: 1.0 };
        bars(load, &rest, &calls).into_iter().filter(|bar| !bar.is_met).map(|bar| bar.name).collect()
    }

    #[test]
    fn steady_run_meets_every_bar() {
        let load = samples(3600, 0.0);
        assert_eq!(missed_bars(&load, load[0], 0), [""; 0]);
    }

    #[test]
    fn each_kind_of_growth_misses_its_bar() {
        let load = samples(3600, 400.0);
        assert_eq!(missed_bars(&load, load[0], 0), ["the server's memory", "the clients' memory"]);
        // A window too short for a slope.
        let load = samples(300, 400.0);
        assert_eq!(missed_bars(&load, load[0], 0), [""; 0]);
        let load = samples(100, 100_000.0);
        assert_eq!(missed_bars(&load, load[0], 0), [""; 0], "too short to be judged");
        let load = samples(300, 100_000.0);
        assert_eq!(missed_bars(&load, load[0], 0), ["the server's memory", "the clients' memory"]);
        let mut load = samples(3600, 0.0);
        for sample in &mut load {
            sample.server.descriptors += sample.at_s as usize / 50;
            sample.client.tasks += sample.at_s as usize / 50;
        }
        assert_eq!(missed_bars(&load, load[0], 0), ["the server's descriptors", "the clients' tasks"]);
    }

    #[test]
    fn failed_call_and_leftovers_miss_their_bars() {
        let load = samples(3600, 0.0);
        assert_eq!(missed_bars(&load, load[0], 1), ["failed calls"]);
        let mut left = load[0];
        left.connections = 1;
        assert_eq!(missed_bars(&load, left, 0), ["left after the last client"]);
        let mut left = load[0];
        left.server.tasks += 5;
        assert_eq!(missed_bars(&load, left, 0), ["left after the last client"]);
    }
}

//! What a suite shows: figures with their intervals, ratios with their verdicts. Terminal, page and documents take it from here.

mod markdown;
mod plots;
mod text;

pub use self::markdown::markdown_block;
pub use self::plots::suite_plot;
pub(super) use self::plots::{chart_svg, ratio_svg};
pub(super) use self::text::write as write_text;

use crate::format::{Bytes, Count, Nanoseconds, three_digits};
use crate::model::{Cell, Key, Measure, Published, RatioRow, Suite};
use crate::statistics::noise::Noise;
use crate::statistics::{
    Comparison, Finding, Interval, MIN_ROUNDS, RatioRound, compare_ratios, median, median_interval,
};

/// A figure here: the median of its rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeasuredFigure {
    pub(super) median: f64,
    pub(super) interval: Option<Interval>,
    pub(super) measure: Measure,
}

/// A ratio here.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MeasuredRatio {
    pub(super) rounds: Vec<f64>,
    pub(super) comparison: Comparison,
}

/// A ratio, and what follows from it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JudgedRatio {
    pub(super) name: String,
    pub(super) published: Option<Published>,
    /// The ratio here, or why there is none.
    pub(super) here: Result<MeasuredRatio, String>,
    pub(super) verdict: String,
    /// `Some(true)` if it is as published, or better; `Some(false)` if it is contrary or worse.
    pub(super) is_good: Option<bool>,
}

/// A figure, or why there is none.
pub(super) fn measured_figure(suite: &Suite, key: &Key) -> Result<MeasuredFigure, String> {
    let values: Vec<_> = cell(suite, key)?.values(key.measure).into_iter().map(|(_, value)| value).collect();
    let median = median(&values).ok_or_else(|| no_figure(suite, key))?;
    Ok(MeasuredFigure { median, interval: median_interval(&values, CONFIDENCE), measure: key.measure })
}

fn cell<'s>(suite: &'s Suite, key: &Key) -> Result<&'s Cell, String> {
    let missing = || suite.why_missing(&key.pair, &key.case).unwrap_or_else(|| "not measured".to_owned());
    suite.cell(&key.pair, &key.case).filter(|cell| !cell.windows.is_empty()).ok_or_else(missing)
}

/// Why a cell with windows has no such figure.
fn no_figure(suite: &Suite, key: &Key) -> String {
    let invalid = suite
        .cell(&key.pair, &key.case)
        .and_then(|cell| cell.windows.iter().find_map(|window| window.invalid.clone()));
    match invalid {
        Some(reason) => format!("INVALID: {reason}"),
        None => "too few calls, or unknown".to_owned(),
    }
}

/// A ratio, computed within rounds; or why there is none.
pub(super) fn ratio(suite: &Suite, of: &Key, to: &Key) -> Result<MeasuredRatio, String> {
    let (numerators, denominators) =
        (cell(suite, of)?.values(of.measure), cell(suite, to)?.values(to.measure));
    let rounds: Vec<_> = numerators
        .iter()
        .filter_map(|(round, of_value)| {
            let (_, to_value) = denominators.iter().find(|(other, _)| other == round)?;
            let noise = noise(suite, &of.case, *round).max(noise(suite, &to.case, *round));
            let control = control(suite, of, *round);
            Some(RatioRound { ratio: of_value / to_value, control, noise })
        })
        .collect();
    let shown = rounds.iter().map(|round| round.ratio).collect();
    let comparison = compare_ratios(&rounds, CONFIDENCE);
    let reason = || if rounds.is_empty() { no_figure(suite, of) } else { "a figure is 0".to_owned() };
    Ok(MeasuredRatio { rounds: shown, comparison: comparison.ok_or_else(reason)? })
}

/// How much the first pair of the case differs from itself in a round.
fn control(suite: &Suite, key: &Key, round: u64) -> Option<f64> {
    let again = suite.control(&key.case)?;
    let first = suite.cell(&again.pair, &key.case)?;
    let value = |cell: &Cell| {
        cell.values(key.measure).into_iter().find(|(other, _)| *other == round).map(|(_, value)| value)
    };
    Some(value(again)? / value(first)?)
}

fn noise(suite: &Suite, case: &str, round: u64) -> Noise {
    let found = suite.noise.iter().find(|noise| noise.case == case && noise.round == round);
    found.map_or(Noise::Quiet, |noise| noise.probe.noise())
}

/// A ratio of the document beside the one here.
pub(super) fn judge(suite: &Suite, row: &RatioRow) -> JudgedRatio {
    let here = ratio(suite, &row.of, &row.to);
    let (verdict, is_good) = match &here {
        Err(reason) => (format!("not measured: {reason}"), None),
        Ok(here) => agreement(row.published, &here.comparison),
    };
    JudgedRatio { name: row.name.clone(), published: row.published, here, verdict, is_good }
}

fn agreement(published: Option<Published>, here: &Comparison) -> (String, Option<bool>) {
    let direction = match here.finding {
        Finding::Higher => true,
        Finding::Lower => false,
        other => return (other.to_string(), None),
    };
    let word = if direction { "higher" } else { "lower" };
    let Some(published) = published else { return (word.to_owned(), None) };
    let overlaps = here
        .interval
        .is_some_and(|interval| interval.low <= published.high() && published.low() <= interval.high);
    match published.is_above_one() {
        Some(above) if above == direction && overlaps => (format!("{word}, as published"), Some(true)),
        Some(above) if above == direction && measured_is_farther(published, here, direction) => {
            (format!("{word}, by more than published"), Some(true))
        }
        Some(above) if above == direction => (format!("{word}, by less than published"), Some(true)),
        Some(_) => (format!("{word}, contrary to the document"), Some(false)),
        None => (format!("{word}; the document shows neither"), None),
    }
}

fn measured_is_farther(published: Published, here: &Comparison, is_above: bool) -> bool {
    if is_above { here.ratio > published.high() } else { here.ratio < published.low() }
}

/// A pair beside its reference: who is better.
pub(super) fn duel(suite: &Suite, pair: &str, reference: &str, case: &str, measure: Measure) -> JudgedRatio {
    let key = |pair: &str| Key { pair: pair.to_owned(), case: case.to_owned(), measure };
    let here = ratio(suite, &key(pair), &key(reference));
    let (verdict, is_good) = match &here {
        Err(reason) => (format!("not measured: {reason}"), None),
        Ok(here) => match (here.comparison.finding, measure.is_more_better()) {
            (Finding::Higher, true) | (Finding::Lower, false) => ("better".to_owned(), Some(true)),
            (Finding::Higher | Finding::Lower, _) => ("worse".to_owned(), Some(false)),
            (other, _) => (other.to_string(), None),
        },
    };
    let name = suite.case(case).map_or_else(|| case.to_owned(), |case| case.name.clone());
    JudgedRatio { name, published: None, here, verdict, is_good }
}

/// A duel of each pair that has a reference, under each case: the pair, its reference, and the judged cases.
pub(super) fn duels(suite: &Suite, measure: Measure) -> Vec<(String, String, Vec<JudgedRatio>)> {
    let pairs = suite.pairs.iter().filter_map(|pair| Some((pair, suite.pair(pair.reference.as_deref()?)?)));
    pairs
        .map(|(pair, reference)| {
            let cases = suite.cases.iter().filter(|case| {
                case.missing.is_none()
                    && suite.cell(&pair.id, &case.id).is_some()
                    && suite.cell(&reference.id, &case.id).is_some()
            });
            let judged = cases.map(|case| duel(suite, &pair.id, &reference.id, &case.id, measure)).collect();
            (pair.name.clone(), reference.name.clone(), judged)
        })
        .filter(|(_, _, judged): &(_, _, Vec<_>)| !judged.is_empty())
        .collect()
}

/// How many differences chance alone is expected to show among these comparisons.
pub(super) fn expected_differences(judged: usize) -> f64 {
    // Six rounds: the interval from minimum to maximum errs in 2 of 2^6 cases.
    judged as f64 * 2.0 / 2.0_f64.powi(MIN_ROUNDS as i32)
}

/// Peers and cases that are missing, each with its reason.
pub(super) fn list_missing(suite: &Suite) -> Vec<(String, String)> {
    let peers = suite.peers.iter().filter_map(|peer| Some((peer.name.clone(), peer.missing.clone()?)));
    let cases = suite.cases.iter().filter_map(|case| Some((case.name.clone(), case.missing.clone()?)));
    let failed = suite.cells.iter().filter(|cell| !cell.is_control).filter_map(|cell| {
        let pair = suite.pair(&cell.pair).map_or(cell.pair.as_str(), |pair| &pair.name);
        Some((format!("{pair}, {}", cell.case), cell.failure.clone()?))
    });
    peers.chain(cases).chain(failed).collect()
}

impl std::fmt::Display for MeasuredFigure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format_measure(self.measure, self.median))
    }
}

impl MeasuredFigure {
    /// Low and high end, or a dash.
    pub(super) fn format_interval(&self) -> String {
        match self.interval {
            Some(interval) => {
                let [low, high] =
                    [interval.low, interval.high].map(|value| format_measure(self.measure, value));
                format!("{low} – {high}")
            }
            None => "–".to_owned(),
        }
    }
}

impl JudgedRatio {
    /// The published ratio, or a dash.
    pub(super) fn format_published(&self) -> String {
        match self.published {
            None => "–".to_owned(),
            Some(Published::Exact(value)) => three_digits(value),
            Some(Published::Between(low, high)) => format!("{} – {}", three_digits(low), three_digits(high)),
        }
    }

    /// The ratio here with its interval, or a dash.
    pub(super) fn format_measured(&self) -> String {
        let Ok(here) = &self.here else { return "–".to_owned() };
        let ratio = three_digits(here.comparison.ratio);
        match here.comparison.interval {
            Some(interval) => {
                format!("{ratio} [{}, {}]", three_digits(interval.low), three_digits(interval.high))
            }
            None => ratio,
        }
    }
}

/// A value with its unit.
pub(super) fn format_measure(measure: Measure, value: f64) -> String {
    match measure {
        Measure::CpuShare => format!("{:.0} %", value * 100.0),
        _ if measure.is_time() => Nanoseconds(value).to_string(),
        _ if measure.is_size() => Bytes(value).to_string(),
        _ => Count(value).to_string(),
    }
}

/// Figures of every pair, in the order in which they are shown.
pub(super) const MEASURES: [Measure; 7] = [
    Measure::Rate,
    Measure::Mean,
    Measure::P99,
    Measure::ClientCpu,
    Measure::ServerCpu,
    Measure::ClientMemory,
    Measure::ServerMemory,
];

const CONFIDENCE: f64 = 0.95;

//! Rounds: every subject once, then every subject again, so that variation of the machine affects
//! them all; medians, and their spread as a measure of confidence.

use std::io;

use serde::Serialize;

use crate::run::Outcome;
use crate::subject::Subject;

/// Results of one subject, per round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series<S = Subject, O = Outcome> {
    pub(crate) subject: S,
    /// An outcome, or its error.
    pub(crate) rounds: Vec<Result<O, String>>,
}

/// Runs every subject in each of `rounds` rounds.
pub(crate) fn interleave<S: Copy, O>(
    rounds: usize,
    subjects: &[S],
    mut run: impl FnMut(S) -> io::Result<O>,
) -> Vec<Series<S, O>> {
    let mut series: Vec<_> =
        subjects.iter().map(|&subject| Series { subject, rounds: Vec::with_capacity(rounds) }).collect();
    for _ in 0..rounds {
        for series in &mut series {
            series.rounds.push(run(series.subject).map_err(|error| error.to_string()));
        }
    }
    series
}

impl<S, O> Series<S, O> {
    /// The median of `figure` and its spread; `None` if no round has an outcome.
    pub(crate) fn spread(&self, figure: impl Fn(&O) -> f64) -> Option<Spread> {
        Spread::from_figures(self.rounds.iter().flatten().map(figure))
    }

    /// Ratio of `figure` to that of `other`, computed per round, as a spread.
    pub(crate) fn ratio(&self, other: &Self, figure: impl Fn(&O) -> f64) -> Option<Spread> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        Spread::from_figures(
            pairs.filter_map(|(own, other)| Some(figure(own.as_ref().ok()?) / figure(other.as_ref().ok()?))),
        )
    }
}

impl<S> Series<S> {
    /// Ratio of the rate to that of `floor`, computed per round, as a spread.
    pub(crate) fn ratio_to(&self, floor: &Self) -> Option<Spread> {
        self.ratio(floor, |outcome| outcome.calls_per_second)
    }

    /// Whether every round has an outcome without errors.
    pub(crate) fn is_clean(&self) -> bool {
        self.rounds.iter().all(|round| round.as_ref().is_ok_and(|outcome| outcome.errors == 0))
    }

    /// The errors, one line per failed round.
    pub(crate) fn error_messages(&self) -> impl Iterator<Item = String> {
        self.rounds.iter().zip(1..).filter_map(|(round, number)| match round {
            Err(error) => Some(format!("round {number}: {error}")),
            Ok(outcome) if outcome.errors > 0 => {
                Some(format!("round {number}: {} wrong replies of {}", outcome.errors, outcome.calls))
            }
            Ok(_) => None,
        })
    }
}

/// A median with minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without figures.
    pub(crate) fn from_figures(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<_> = figures.collect();
        figures.sort_by(f64::total_cmp);
        let (&min, &max) = (figures.first()?, figures.last()?);
        let (below, above) = (figures[(figures.len() - 1) / 2], figures[figures.len() / 2]);
        Some(Self { median: f64::midpoint(below, above), min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_count_lies_between_the_middle_two() {
        let spread = |figures: &[f64]| Spread::from_figures(figures.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn subjects_take_turns_within_each_round() {
        let mut order = Vec::new();
        interleave(2, &[Subject::Floor, Subject::Polyrpc], |subject| {
            order.push(subject);
            Ok(rate(1.0))
        });
        assert_eq!(order, [Subject::Floor, Subject::Polyrpc, Subject::Floor, Subject::Polyrpc]);
    }

    #[test]
    fn ratio_is_computed_per_round_before_the_median() {
        // A machine that is twice as fast in every other round.
        let floor = series([Ok(rate(100.0)), Ok(rate(200.0)), Ok(rate(100.0))]);
        let own = series([Ok(rate(80.0)), Ok(rate(160.0)), Ok(rate(90.0))]);
        assert_eq!(own.ratio_to(&floor), Some(Spread { median: 0.8, min: 0.8, max: 0.9 }));
    }

    #[test]
    fn failed_round_is_left_out_of_the_median_but_reported() {
        let floor = series([Ok(rate(100.0)), Ok(rate(100.0)), Ok(rate(100.0))]);
        let own = series([Ok(rate(80.0)), Err("gone".to_owned()), Ok(rate(80.0))]);
        assert_eq!(own.ratio_to(&floor).map(|ratio| ratio.median), Some(0.8));
        assert!(!own.is_clean());
        assert_eq!(own.error_messages().collect::<Vec<_>>(), ["round 2: gone"]);
    }

    #[test]
    fn one_wrong_reply_marks_the_series_as_unclean() {
        let mut wrong = rate(100.0);
        wrong.errors = 1;
        assert!(!series([Ok(rate(100.0)), Ok(wrong), Ok(rate(100.0))]).is_clean());
    }

    fn series(rounds: [Result<Outcome, String>; 3]) -> Series {
        Series { subject: Subject::Polyrpc, rounds: rounds.into() }
    }

    fn rate(calls_per_second: f64) -> Outcome {
        Outcome {
            calls: 100,
            errors: 0,
            calls_per_second,
            p50_us: 1.0,
            p99_us: 1.0,
            p999_us: 1.0,
            max_us: 1.0,
            client_cpu_us: 1.0,
            server_cpu_us: 1.0,
        }
    }
}

//! One workload of a suite: measured, and compared with its bar.

use serde::Serialize;

use crate::bar::{Bar, Limit};
use crate::idle::{self, Quiet};
use crate::rounds::{self, Series};
use crate::run::{self, Timing, Workload};
use crate::subject::Subject;

/// A workload and its bar.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) workload: Workload,
    pub(crate) limit: Limit,
}

/// Idle connections and their bar.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct QuietCase {
    pub(crate) name: &'static str,
    pub(crate) quiet: Quiet,
    pub(crate) limit: Limit,
}

/// A workload and the results of every subject.
#[derive(Debug, Serialize)]
pub(crate) struct MeasuredCase {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) series: Vec<Series>,
}

/// Idle connections, and the memory of each subject per connection in KiB.
#[derive(Debug, Serialize)]
pub(crate) struct MeasuredQuiet {
    #[serde(flatten)]
    pub(crate) case: QuietCase,
    pub(crate) kib: Vec<(Subject, Result<f64, String>)>,
}

impl Case {
    pub(crate) fn measure(&self, subjects: &[Subject], rounds: usize, timing: Timing) -> MeasuredCase {
        eprintln!("measuring {}", self.name);
        let series =
            rounds::interleave(rounds, subjects, |subject| run::run(subject, &self.workload, timing));
        MeasuredCase { case: *self, series }
    }
}

impl QuietCase {
    pub(crate) fn measure(&self, subjects: &[Subject]) -> MeasuredQuiet {
        eprintln!("measuring {}", self.name);
        let cost = |&subject: &Subject| {
            (subject, idle::kib_per_connection(subject, self.quiet).map_err(|error| error.to_string()))
        };
        MeasuredQuiet { case: *self, kib: subjects.iter().map(cost).collect() }
    }
}

impl MeasuredCase {
    /// The series of one subject, if it was measured.
    pub(crate) fn series(&self, subject: Subject) -> Option<&Series> {
        self.series.iter().find(|series| series.subject == subject)
    }

    pub(crate) fn bar(&self) -> Bar {
        let (floor, own) = (self.series(Subject::Floor), self.series(Subject::Polyrpc));
        let spread = match self.case.limit {
            Limit::RatioAtLeast(_) => own.zip(floor).and_then(|(own, floor)| own.ratio_to(floor)),
            Limit::RatioAtMost(_) => own.zip(floor).and_then(|(own, floor)| own.ratio(floor, |o| o.cpu_us())),
            _ => own.and_then(|own| own.spread(|o| o.cpu_us())),
        };
        Bar {
            name: self.case.name.to_owned(),
            value: spread.map(|spread| spread.median),
            limit: self.case.limit,
            clean: self.series.iter().all(Series::is_clean),
        }
    }
}

impl MeasuredQuiet {
    pub(crate) fn bar(&self) -> Bar {
        let own = self.kib.iter().find(|(subject, _)| *subject == Subject::Polyrpc);
        let value = own.and_then(|(_, kib)| kib.as_ref().ok().copied());
        Bar { name: self.case.name.to_owned(), value, limit: self.case.limit, clean: true }
    }
}

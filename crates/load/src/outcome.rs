//! Results of a run, as plain data for reports.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::engine::record::{MethodRecord, ThreadRecord, add, histogram};
use crate::process::Usage;
use crate::verdict::Verdict;

pub use crate::engine::record::Counts;

/// Results of a run. Histograms contain nanoseconds.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Measured time: from the end of the warm-up to the planned end, or to the end of the last call.
    pub window: Duration,
    /// Numbers of calls.
    pub counts: Counts,
    /// Results of each method, in the order of the plan.
    pub methods: Vec<MethodOutcome>,
    /// From the send to the end, of calls that succeeded.
    pub service: Histogram<u64>,
    /// From the planned time to the send, of all calls.
    pub lag: Histogram<u64>,
    /// The part of the lag for which the generator is responsible: without the time in which the maximum number of
    /// calls was in flight.
    pub own_lag: Histogram<u64>,
    /// Each second of the window, and those after it in which calls ended.
    pub seconds: Vec<Second>,
    /// Whether the run is valid.
    pub verdict: Verdict,
    /// Whether the run was ended early.
    pub interrupted: bool,
    /// Lost connections, if calls had none.
    pub lost: Option<Lost>,
    /// CPU time and memory of this process.
    pub generator: Usage,
    /// CPU time and memory of the server's process, if they are known.
    pub server: Option<Usage>,
}

/// Results of one method.
#[derive(Debug, Clone)]
pub struct MethodOutcome {
    /// From the planned time to the end, of calls that succeeded.
    pub response: Histogram<u64>,
    /// The same of calls that failed or were not answered; for the latter it is a lower bound.
    pub failed: Histogram<u64>,
    /// Failed calls by error.
    pub errors: BTreeMap<String, u64>,
}

/// One second of the measurement. Calls are counted in the second of their end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Second {
    /// Seconds since the start of the window.
    pub second: u64,
    /// Calls that were sent.
    pub sent: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls in flight at its end.
    pub in_flight: u64,
    /// Quantiles of the response time in nanoseconds, with two digits: those of [`SECOND_QUANTILES`].
    pub quantiles: [u64; SECOND_QUANTILES.len()],
    /// Longest response time in nanoseconds.
    pub max: u64,
    /// Greatest delay of a call by the generator, in nanoseconds.
    pub lag_max: u64,
}

/// Quantiles that are reported for each second.
pub const SECOND_QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Calls that lost their connection or could not get one.
#[derive(Debug, Clone, PartialEq)]
pub struct Lost {
    /// Number of these calls.
    pub calls: u64,
    /// When the first of them ended, from the start of the window.
    pub after: Duration,
    /// Error of the first of them.
    pub reason: String,
    /// Whether the last call of every thread ended so: the server did not return.
    pub for_good: bool,
}

impl Outcome {
    /// Response times of all methods, of calls that succeeded.
    pub fn response(&self) -> Histogram<u64> {
        self.merged(|method| vec![&method.response])
    }

    /// Response times of all calls, also of those that failed or were not answered.
    pub fn response_of_all(&self) -> Histogram<u64> {
        self.merged(|method| vec![&method.response, &method.failed])
    }

    fn merged(&self, of: impl Fn(&MethodOutcome) -> Vec<&Histogram<u64>>) -> Histogram<u64> {
        let mut all = histogram();
        self.methods.iter().flat_map(of).for_each(|part| add(&mut all, part));
        all
    }

    /// Failed calls by error, of all methods.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (error, count) in self.methods.iter().flat_map(|method| &method.errors) {
            *all.entry(error.clone()).or_default() += count;
        }
        all
    }

    /// Share of the sent calls that failed or were not answered.
    pub fn error_rate(&self) -> f64 {
        (self.counts.failed + self.counts.unanswered) as f64 / self.counts.sent.max(1) as f64
    }

    /// Calls per second that succeeded, of those that ended within the window.
    pub fn calls_per_second(&self) -> f64 {
        let ended = (self.counts.succeeded + self.counts.failed).max(1);
        let in_time = self.counts.ended_in_window as f64 * self.counts.succeeded as f64 / ended as f64;
        match self.window.is_zero() {
            true => 0.0,
            false => in_time / self.window.as_secs_f64(),
        }
    }
}

impl From<MethodRecord> for MethodOutcome {
    fn from(record: MethodRecord) -> Self {
        let MethodRecord { response, failed, errors } = record;
        Self { response, failed, errors }
    }
}

/// Calls without a connection, of all threads.
pub(crate) fn lost(record: &ThreadRecord, opens: u64) -> Option<Lost> {
    let (at, reason) = record.first_lost.as_ref()?;
    Some(Lost {
        calls: record.counts.lost,
        after: Duration::from_nanos(at.saturating_sub(opens)),
        reason: reason.clone(),
        for_good: !record.is_connected,
    })
}

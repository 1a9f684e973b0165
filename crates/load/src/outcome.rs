//! Results of a run, as plain data for reports.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::engine::record::{MethodRecord, ThreadRecord, add, histogram};
use crate::process::Usage;
use crate::rpc::WRONG_REPLY;
use crate::verdict::Verdict;

pub use crate::engine::record::Counts;

/// Results of a run. Histograms contain nanoseconds.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Measured time: from the end of the warm-up to the planned end, or to the end of the last call.
    pub window: Duration,
    /// When the measurement began, by the clock of this process; `None` if several made the calls.
    pub opened: Option<Instant>,
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
    /// Calls that lost their connection or could not get one.
    pub lost: Option<Lost>,
    /// CPU time and memory of this process, or of all that made the calls.
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
    /// Text of a call that failed first in its thread, by error.
    pub reasons: BTreeMap<String, String>,
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
    /// Whether the last call of every thread failed this way: the server did not return.
    pub for_good: bool,
}

impl Outcome {
    /// Merges the outcomes of processes that each made a part of the same open loop. Histograms are added, so that
    /// quantiles are those of all calls; the seconds are the caller's to merge. Without parts it is the outcome of a
    /// run without calls.
    pub fn merge(methods: usize, parts: &[Self]) -> Self {
        let none = Usage { pid: 0, cpu: Duration::ZERO, memory: 0, memory_peak: 0 };
        let mut all = Self {
            window: Duration::ZERO,
            opened: None,
            counts: Counts::default(),
            methods: (0..methods).map(|_| MethodRecord::new().into()).collect(),
            service: histogram(),
            lag: histogram(),
            own_lag: histogram(),
            seconds: Vec::new(),
            verdict: Verdict::NothingMeasured,
            interrupted: false,
            lost: None,
            generator: none,
            server: None,
        };
        for part in parts {
            all.add(part);
        }
        // A server that one of them reached still runs.
        let everywhere = parts.iter().all(|part| part.lost.as_ref().is_some_and(|lost| lost.for_good));
        if let Some(lost) = &mut all.lost {
            lost.for_good = everywhere;
        }
        all.verdict = Verdict::for_open_loop(&all.counts, &all.own_lag);
        all
    }

    fn add(&mut self, part: &Self) {
        self.window = self.window.max(part.window);
        self.counts.add(&part.counts);
        for (all, part) in self.methods.iter_mut().zip(&part.methods) {
            add_any(&mut all.response, &part.response);
            add_any(&mut all.failed, &part.failed);
            for (error, count) in &part.errors {
                let all = all.errors.entry(error.clone()).or_default();
                *all = all.saturating_add(*count);
            }
            for (error, reason) in &part.reasons {
                all.reasons.entry(error.clone()).or_insert_with(|| reason.clone());
            }
        }
        add_any(&mut self.service, &part.service);
        add_any(&mut self.lag, &part.lag);
        add_any(&mut self.own_lag, &part.own_lag);
        self.interrupted |= part.interrupted;
        self.lost = match (self.lost.take(), part.lost.clone()) {
            (Some(one), Some(other)) => {
                let calls = one.calls.saturating_add(other.calls);
                let first = if one.after <= other.after { one } else { other };
                Some(Lost { calls, ..first })
            }
            (one, other) => one.or(other),
        };
        self.generator.cpu = self.generator.cpu.saturating_add(part.generator.cpu);
        self.generator.memory = self.generator.memory.saturating_add(part.generator.memory);
        self.generator.memory_peak = self.generator.memory_peak.saturating_add(part.generator.memory_peak);
    }

    /// Response times of all methods, of calls that succeeded.
    pub fn response(&self) -> Histogram<u64> {
        self.merge_histograms(|method| vec![&method.response])
    }

    /// Response times of all calls, also of those that failed or were not answered.
    pub fn response_of_all(&self) -> Histogram<u64> {
        self.merge_histograms(|method| vec![&method.response, &method.failed])
    }

    fn merge_histograms(&self, of: impl Fn(&MethodOutcome) -> Vec<&Histogram<u64>>) -> Histogram<u64> {
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

    /// The text of one failed call of this error, if it is known.
    pub fn reason(&self, error: &str) -> Option<&str> {
        self.methods.iter().find_map(|method| method.reasons.get(error)).map(String::as_str)
    }

    /// Replies that were not the expected ones.
    pub fn wrong_replies(&self) -> u64 {
        self.methods.iter().filter_map(|method| method.errors.get(WRONG_REPLY)).sum()
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
        let MethodRecord { response, failed, errors, reasons } = record;
        Self { response, failed, errors, reasons }
    }
}

/// Adds a histogram with any bounds. Values beyond the bounds of the sum count as its greatest value.
fn add_any(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    for step in other.iter_recorded() {
        sum.saturating_record_n(step.value_iterated_to(), step.count_since_last_iteration());
    }
}

/// Calls without a connection, of all threads.
pub(crate) fn lost_calls(record: &ThreadRecord, opens: u64) -> Option<Lost> {
    let (at, reason) = record.first_lost.as_ref()?;
    Some(Lost {
        calls: record.counts.lost,
        after: Duration::from_nanos(at.saturating_sub(opens)),
        reason: reason.clone(),
        for_good: !record.is_connected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcome of a process whose calls all took this time.
    fn part(calls: u64, response: u64) -> Outcome {
        let mut part = Outcome::merge(1, &[]);
        part.window = Duration::from_secs(1);
        let ended = Counts {
            planned: calls,
            sent: calls,
            succeeded: calls,
            ended_in_window: calls,
            ..Counts::default()
        };
        part.counts = ended;
        part.methods[0].response.record_n(response, calls).unwrap();
        part.lag.record_n(5_000, calls).unwrap();
        part.own_lag.record_n(5_000, calls).unwrap();
        part.verdict = Verdict::Valid;
        part
    }

    #[test]
    fn quantiles_of_merged_parts_are_those_of_all_calls() {
        // An average of the two p99 would be 50 ms, of which no call is slower than 1 %.
        let (fast, slow) = (part(999, 1_000), part(1, 100_000_000));
        let merged = Outcome::merge(1, &[fast, slow]);
        assert_eq!(merged.response().value_at_quantile(0.99), 1_000);
        assert_eq!((merged.response().max() / 1_000_000, merged.counts.planned), (100, 1_000));
        assert_eq!((&merged.verdict, merged.window), (&Verdict::Valid, Duration::from_secs(1)));
        assert_eq!(Outcome::merge(1, &[]).verdict, Verdict::NothingMeasured);
    }

    #[test]
    fn one_late_part_invalidates_the_whole() {
        let mut late = part(500, 1_000);
        late.own_lag.record_n(50_000_000, 500).unwrap();
        assert!(!Outcome::merge(1, &[part(500, 1_000), late]).verdict.is_valid());
    }

    #[test]
    fn server_is_gone_if_it_is_gone_for_every_part() {
        let lost = |for_good, after| {
            let lost =
                Lost { calls: 2, after: Duration::from_secs(after), reason: after.to_string(), for_good };
            Outcome { lost: Some(lost), ..part(10, 1) }
        };
        let merged = |parts: &[Outcome]| Outcome::merge(1, parts).lost.unwrap();
        let gone = merged(&[lost(true, 3), lost(true, 2)]);
        assert_eq!((gone.calls, gone.reason.as_str(), gone.for_good), (4, "2", true));
        assert!(!merged(&[lost(true, 3), part(10, 1)]).for_good);
    }
}

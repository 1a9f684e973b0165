//! Times of the calls of one thread.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use hdrhistogram::Histogram;

use super::call_error::CallError;
use super::slots::CallTimes;

/// A histogram of nanoseconds from 1 ns to an hour, with three digits; longer times count as an hour. 264 KiB, however
/// many calls it holds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HOUR, 3).expect("the bounds are in order")
}

const HOUR: u64 = 3_600_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// Results of one thread.
pub(crate) struct ThreadRecord {
    pub(crate) methods: Vec<MethodRecord>,
    /// From the send to the end, of calls that succeeded.
    pub(crate) service: Histogram<u64>,
    /// From the planned time to the send, of every call.
    pub(crate) lag: Histogram<u64>,
    /// The part of it for which the generator is responsible: from when the call was due and a caller was free.
    pub(crate) own_lag: Histogram<u64>,
    pub(crate) counts: Counts,
    /// The first call without a connection: when it ended, and why.
    pub(crate) first_lost: Option<(u64, String)>,
    /// Whether the last call that ended had a connection.
    pub(crate) is_connected: bool,
    /// When the last measured call ended.
    pub(crate) last_end: u64,
}

/// Results of one method.
pub(crate) struct MethodRecord {
    /// From the planned time to the end, of calls that succeeded.
    pub(crate) response: Histogram<u64>,
    /// The same of failed and unanswered calls, for which it is a lower bound.
    pub(crate) failed: Histogram<u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Text of the first failure of each error.
    pub(crate) reasons: BTreeMap<String, String>,
}

/// Numbers of measured calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that were due before the end of the run. In a closed loop those that were sent.
    pub planned: u64,
    /// Calls that were sent.
    pub sent: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were sent and had not ended when the run was interrupted or its drain timeout was over.
    pub unanswered: u64,
    /// Calls that were due but could not be sent because too many were in flight, until one of those ended.
    pub blocked: u64,
    /// Calls that ended, in whatever way, before the end of the measured window.
    pub ended_in_window: u64,
    /// Calls that lost their connection or had none.
    pub lost: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.planned, other.planned),
            (&mut self.sent, other.sent),
            (&mut self.succeeded, other.succeeded),
            (&mut self.failed, other.failed),
            (&mut self.unanswered, other.unanswered),
            (&mut self.blocked, other.blocked),
            (&mut self.ended_in_window, other.ended_in_window),
            (&mut self.lost, other.lost),
        ];
        for (sum, count) in pairs {
            // Another process may send any number.
            *sum = sum.saturating_add(count);
        }
    }
}

impl ThreadRecord {
    pub(crate) fn new(methods: usize) -> Self {
        Self {
            methods: (0..methods).map(|_| MethodRecord::new()).collect(),
            service: histogram(),
            lag: histogram(),
            own_lag: histogram(),
            counts: Counts::default(),
            first_lost: None,
            is_connected: false,
            last_end: 0,
        }
    }

    /// Adds the results of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        for (method, other) in self.methods.iter_mut().zip(&other.methods) {
            add(&mut method.response, &other.response);
            add(&mut method.failed, &other.failed);
            for (error, count) in &other.errors {
                *method.errors.entry(error.clone()).or_default() += count;
            }
            for (error, reason) in &other.reasons {
                method.reasons.entry(error.clone()).or_insert_with(|| reason.clone());
            }
        }
        add(&mut self.service, &other.service);
        add(&mut self.lag, &other.lag);
        add(&mut self.own_lag, &other.own_lag);
        self.counts.add(&other.counts);
        let firsts = [self.first_lost.take(), other.first_lost.clone()];
        self.first_lost = firsts.into_iter().flatten().min_by_key(|(at, _)| *at);
        self.is_connected |= other.is_connected;
        self.last_end = self.last_end.max(other.last_end);
    }

    pub(crate) fn record_sent(&mut self, times: &CallTimes) {
        self.counts.sent += 1;
        self.lag.saturating_record(times.sent.saturating_sub(times.planned));
        self.own_lag.saturating_record(times.sent.saturating_sub(times.sendable));
        self.counts.blocked += u64::from(times.sendable > times.planned);
    }

    /// Records the end of a measured call. Returns its response time.
    pub(crate) fn record_end(&mut self, times: &CallTimes, now: u64, failure: Option<&CallError>) -> u64 {
        self.last_end = now;
        let response = now.saturating_sub(start_of_response(times));
        match failure {
            None => {
                self.counts.succeeded += 1;
                self.is_connected = true;
                self.methods[times.method].response.saturating_record(response);
                self.service.saturating_record(now.saturating_sub(times.sent));
            }
            Some(failure) => self.record_failure(times, now, response, failure),
        }
        response
    }

    #[cold]
    fn record_failure(&mut self, times: &CallTimes, now: u64, response: u64, failure: &CallError) {
        self.counts.failed += 1;
        let method = &mut self.methods[times.method];
        method.failed.saturating_record(response);
        match method.errors.get_mut(&failure.name) {
            Some(count) => *count += 1,
            None => {
                method.errors.insert(failure.name.clone(), 1);
                method.reasons.insert(failure.name.clone(), failure.reason.clone());
            }
        }
        self.is_connected = !failure.is_lost;
        if failure.is_lost {
            self.counts.lost += 1;
            self.first_lost.get_or_insert_with(|| (now, failure.reason.clone()));
        }
    }

    /// Records a measured call that has not ended: its response time is at least the time until now.
    pub(crate) fn record_unanswered(&mut self, times: &CallTimes, now: u64) {
        self.counts.unanswered += 1;
        let response = now.saturating_sub(start_of_response(times));
        self.methods[times.method].failed.saturating_record(response);
    }

    /// Records a call that was due and never sent.
    pub(crate) fn record_unsent(&mut self, method: usize, planned: u64, now: u64) {
        self.methods[method].failed.saturating_record(now.saturating_sub(planned));
    }
}

/// Start of the response time: the planned time. A caller that waits for the generator waits as well.
fn start_of_response(times: &CallTimes) -> u64 {
    match cfg!(feature = "clock-at-send") {
        true => times.sent,
        false => times.planned,
    }
}

impl MethodRecord {
    pub(crate) fn new() -> Self {
        Self { response: histogram(), failed: histogram(), errors: BTreeMap::new(), reasons: BTreeMap::new() }
    }
}

pub(crate) fn add(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    sum.add(other).expect("the histograms have the same bounds");
}

/// Results of one second of one thread, counted by the ends of calls. Times are nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecondPart {
    /// Number of the second of the measured window.
    pub number: u64,
    /// Calls that were sent.
    pub sent: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls in flight at its end.
    pub in_flight: u64,
    /// Greatest delay of a call by the generator.
    pub lag_max: u64,
    /// Longest response time.
    pub response_max: u64,
    /// Response times with two digits, and how many calls had each.
    pub responses: Vec<(u64, u64)>,
}

/// The current second of one thread. Reports each second when it has passed.
pub(crate) struct Seconds {
    opens: u64,
    current: SecondPart,
    responses: Histogram<u64>,
    report: Sender<SecondPart>,
}

impl Seconds {
    pub(crate) fn new(opens: u64, report: Sender<SecondPart>) -> Self {
        let responses = second_histogram();
        Self { opens, current: SecondPart::default(), responses, report }
    }

    /// End of the current second.
    pub(crate) fn ends_at(&self) -> u64 {
        self.opens + (self.current.number + 1) * SECOND
    }

    pub(crate) fn record_sent(&mut self, times: &CallTimes) {
        self.current.sent += 1;
        self.current.lag_max = self.current.lag_max.max(times.sent.saturating_sub(times.sendable));
    }

    pub(crate) fn record_end(&mut self, response: u64, succeeded: bool) {
        self.responses.saturating_record(response);
        self.current.response_max = self.current.response_max.max(response);
        match succeeded {
            true => self.current.succeeded += 1,
            false => self.current.failed += 1,
        }
    }

    /// Reports the seconds that have passed.
    pub(crate) fn report_passed(&mut self, now: u64, in_flight: usize) {
        while now >= self.ends_at() {
            self.finish(in_flight);
        }
    }

    /// Reports the current second.
    pub(crate) fn finish(&mut self, in_flight: usize) {
        let next = SecondPart { number: self.current.number + 1, ..SecondPart::default() };
        let mut passed = std::mem::replace(&mut self.current, next);
        passed.in_flight = in_flight as u64;
        let recorded = self.responses.iter_recorded();
        passed.responses =
            recorded.map(|step| (step.value_iterated_to(), step.count_since_last_iteration())).collect();
        self.responses.reset();
        // A receiver that is gone does not need it.
        let _ = self.report.send(passed);
    }
}

/// A histogram of nanoseconds with two digits: 20 KiB.
pub(crate) fn second_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HOUR, 2).expect("the bounds are in order")
}

//! Traits of a load balancer: [`LoadBalancer`] builds a [`Picker`] for a set of servers, which is given a
//! [`PickContext`] for each call and the [`AttemptOutcome`] of each attempt.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_core::{Code, Status};

use super::Candidate;
use crate::client::retryable::counts_against_server;

/// Load balancing policy.
///
/// One balancer serves the calls of one client: its state, such as positions or latencies, belongs to that client's
/// servers.
pub trait LoadBalancer: fmt::Debug + Send + Sync + 'static {
    /// Builds the picker for a set of servers, which are identified by their indices in it. The same [`Candidate`] denotes
    /// the same server as in the previous set.
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker>;
}

impl<B: LoadBalancer + ?Sized> LoadBalancer for Box<B> {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        (**self).picker(candidates)
    }
}

impl<B: LoadBalancer + ?Sized> LoadBalancer for Arc<B> {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        (**self).picker(candidates)
    }
}

/// Chooses among the servers of one set.
pub trait Picker: Send + Sync {
    /// Returns the index of the server that is to answer; `None` if no server may.
    ///
    /// The picker itself skips servers for which [`PickContext::is_eligible`] is false; the client does not check that. If
    /// it returns `None`, the client picks again, also among servers that the call has tried, and then as if all were
    /// healthy, untried ones first; a call that then gets no server fails. A call that found several servers unreachable
    /// picks as if only those with an open connection were healthy. In picks with such an assumption the candidates have
    /// no load: [`Candidate::in_flight`] is zero, and [`Candidate::ptr_eq`] does not tell them apart.
    fn pick(&self, context: &PickContext<'_>) -> Option<usize>;

    /// Records the start of an attempt on the server with this index.
    fn call_started(&self, _index: usize, _now: Instant) {}

    /// Records the end of an attempt on the server with this index. It is called for every attempt that was reported to
    /// [`call_started`](Self::call_started), cancelled ones included.
    fn call_finished(&self, _index: usize, _outcome: &AttemptOutcome<'_>) {}
}

impl<P: Picker + ?Sized> Picker for Arc<P> {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        (**self).pick(context)
    }

    fn call_started(&self, index: usize, now: Instant) {
        (**self).call_started(index, now);
    }

    fn call_finished(&self, index: usize, outcome: &AttemptOutcome<'_>) {
        (**self).call_finished(index, outcome);
    }
}

/// Call that needs a server.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PickContext<'a> {
    /// Service name.
    pub service: &'a str,
    /// Method name.
    pub method: &'a str,
    /// Hash key: policies that hash send calls with the same key to the same server. brpc's request code, or any other
    /// value that the caller sets; `None` if the caller sets none.
    pub key: Option<u64>,
    /// Encoded request.
    pub request: &'a [u8],
    /// Time of the pick.
    pub now: Instant,
    /// Candidates that the picker was built for.
    pub candidates: &'a [Candidate],
    /// Indices of the servers that the call has tried or is trying.
    pub tried: &'a [usize],
}

impl<'a> PickContext<'a> {
    /// Creates a call without names, key or request, for tests of a balancer.
    pub fn new(candidates: &'a [Candidate]) -> Self {
        let now = Instant::now();
        Self { service: "", method: "", key: None, request: &[], now, candidates, tried: &[] }
    }

    /// Whether the server with this index may take the call: it is considered healthy and has not been tried.
    pub fn is_eligible(&self, index: usize) -> bool {
        self.is_available(index) && !self.tried.contains(&index)
    }

    /// Whether the server with this index is considered healthy.
    pub fn is_available(&self, index: usize) -> bool {
        self.candidates.get(index).is_some_and(|candidate| candidate.is_available(self.now))
    }
}

/// Outcome of an attempt.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AttemptOutcome<'a> {
    /// Time from the start, which was the `now` of [`Picker::call_started`], to the end.
    pub latency: Duration,
    /// Time of the end.
    pub now: Instant,
    /// Reason of the failure, if it failed.
    pub failure: Option<&'a Status>,
    /// Timeout of the call.
    pub timeout: Option<Duration>,
    /// Number of attempts that the call has left.
    pub attempts_left: u32,
    /// Number of attempts made, this one included.
    pub attempts_made: u32,
}

impl AttemptOutcome<'_> {
    /// Creates the outcome of a call's only attempt, which succeeded, for tests of a balancer.
    pub fn new(latency: Duration, now: Instant) -> Self {
        Self { latency, now, failure: None, timeout: None, attempts_left: 0, attempts_made: 1 }
    }

    /// Whether the server is to blame: neither a rejection of the caller's own mistake nor a cancelled call counts.
    pub fn is_server_failure(&self) -> bool {
        self.failure.is_some_and(counts_against_server)
    }

    /// Whether the call was cancelled before the answer: the latency is then only a lower bound.
    pub fn is_cancelled(&self) -> bool {
        !self.is_server_failure() && self.failure.is_some_and(|status| status.code() == Code::Cancelled)
    }
}

/// Numbers of a call's attempts, as of one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptCounts {
    /// Number of attempts that the call has left.
    pub(crate) left: u32,
    /// Number of attempts made, this one included.
    pub(crate) made: u32,
}

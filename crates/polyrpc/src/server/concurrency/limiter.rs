use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polyrpc_core::{Code, Status};

use super::ConcurrencyLimit;
use super::auto_limiter::AutoLimiter;
use super::timeout_limiter::TimeoutLimiter;
use super::window::SampleOutcome;
use crate::server::incidents::{IncidentCounters, Refusal};

/// Counts the calls in progress, and decides whether one more is admitted.
#[derive(Debug)]
pub(in crate::server) struct ConcurrencyLimiter {
    calls: AtomicUsize,
    algorithm: LimitAlgorithm,
    /// Scope of the counted calls, for the text of a rejection.
    scope: LimitScope,
    incidents: Arc<IncidentCounters>,
}

/// Scope of the counted calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum LimitScope {
    Server,
    Method,
}

#[derive(Debug)]
enum LimitAlgorithm {
    Constant(usize),
    Auto(Box<AutoLimiter>),
    Timeout(Box<TimeoutLimiter>),
}

impl ConcurrencyLimiter {
    /// Creates a limiter; `None` if there is nothing to limit.
    pub(in crate::server) fn new(
        limit: &ConcurrencyLimit,
        scope: LimitScope,
        incidents: Arc<IncidentCounters>,
    ) -> Option<Self> {
        let now = Instant::now();
        let algorithm = match limit {
            ConcurrencyLimit::Unlimited => return None,
            ConcurrencyLimit::Constant(number) => LimitAlgorithm::Constant(*number),
            &ConcurrencyLimit::Auto { initial, min, max } => {
                // If no random seed is available, the limiters of several processes may probe at the same time.
                let seed = getrandom::u64().unwrap_or_default();
                LimitAlgorithm::Auto(Box::new(AutoLimiter::new(initial, (min, max), now, seed)))
            }
            &ConcurrencyLimit::Timeout { timeout, max } => {
                LimitAlgorithm::Timeout(Box::new(TimeoutLimiter::new(timeout, max, now)))
            }
        };
        Some(Self { calls: AtomicUsize::new(0), algorithm, scope, incidents })
    }

    /// Whether the algorithm needs the latency of calls. Streaming calls are not limited then.
    pub(super) fn needs_latency(&self) -> bool {
        !matches!(self.algorithm, LimitAlgorithm::Constant(_))
    }

    /// Acquires a permit for a call with this timeout.
    ///
    /// # Errors
    ///
    /// If the limit is reached.
    pub(super) fn acquire(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Permit, Status> {
        let permit = Permit(self.clone());
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let admitted = match &self.algorithm {
            LimitAlgorithm::Constant(limit) => calls <= *limit,
            LimitAlgorithm::Auto(auto) => auto.admits(calls),
            LimitAlgorithm::Timeout(by_timeout) => by_timeout.admits(calls, timeout),
        };
        if admitted { Ok(permit) } else { Err(self.reject(calls)) }
    }

    /// Records the duration of a finished call. One that failed with `ResourceExhausted` is ignored: it was probably
    /// rejected.
    pub(super) fn record_end(&self, failure: Option<Code>, began: Instant, now: Instant) {
        let latency = now.saturating_duration_since(began);
        let outcome = match failure {
            None => SampleOutcome::Succeeded,
            Some(Code::ResourceExhausted) => return,
            Some(_) => SampleOutcome::Failed,
        };
        match &self.algorithm {
            LimitAlgorithm::Constant(_) => {}
            LimitAlgorithm::Auto(auto) => auto.record_end(outcome, latency, now),
            LimitAlgorithm::Timeout(by_timeout) => by_timeout.record_end(outcome, latency, now),
        }
    }

    /// Counts the rejection and returns its status. The server's text is brpc's (`policy/baidu_rpc_protocol.cpp`); the
    /// method's is our own.
    #[cold]
    fn reject(&self, calls: usize) -> Status {
        self.incidents.count(match self.scope {
            LimitScope::Server => Refusal::Concurrency,
            LimitScope::Method => Refusal::MethodConcurrency,
        });
        let limit = match &self.algorithm {
            LimitAlgorithm::Constant(limit) => *limit,
            LimitAlgorithm::Auto(auto) => auto.limit(),
            LimitAlgorithm::Timeout(_) => calls - 1,
        };
        Status::resource_exhausted(match self.scope {
            LimitScope::Server => format!("Reached server's max_concurrency={limit}"),
            LimitScope::Method => format!("Reached the method's max_concurrency={limit}"),
        })
    }
}

/// A permit of one call in progress; released on drop.
#[derive(Debug)]
pub(super) struct Permit(Arc<ConcurrencyLimiter>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

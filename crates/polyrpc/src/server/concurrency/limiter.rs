use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polyrpc_core::{Code, Status};

use super::ConcurrencyLimit;
use super::auto_limiter::AutoLimiter;
use super::timeout_limiter::TimeoutLimiter;
use super::window::SampleOutcome;
use crate::server::incidents::{IncidentCounters, Refusal};

/// Counts the calls that are being answered, and says whether there may be one more.
#[derive(Debug)]
pub(in crate::server) struct ConcurrencyLimiter {
    calls: AtomicUsize,
    rule: LimitAlgorithm,
    /// Whose calls it counts, in the words of who is refused.
    of: LimitScope,
    incidents: Arc<IncidentCounters>,
}

/// Whose calls are counted.
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
    /// `None` where there is nothing to limit.
    pub(in crate::server) fn new(
        limit: &ConcurrencyLimit,
        of: LimitScope,
        incidents: Arc<IncidentCounters>,
    ) -> Option<Self> {
        let now = Instant::now();
        let rule = match limit {
            ConcurrencyLimit::Unlimited => return None,
            ConcurrencyLimit::Constant(number) => LimitAlgorithm::Constant(*number),
            ConcurrencyLimit::Auto(limits) => {
                // Without randomness it still works, in step with its like.
                let seed = getrandom::u64().unwrap_or_default();
                LimitAlgorithm::Auto(Box::new(AutoLimiter::new(limits.clone(), now, seed)))
            }
            ConcurrencyLimit::Timeout(limits) => {
                LimitAlgorithm::Timeout(Box::new(TimeoutLimiter::new(limits.clone(), now)))
            }
        };
        Some(Self { calls: AtomicUsize::new(0), rule, of, incidents })
    }

    /// Whether it wants to know what calls take, and thus bothers with those only that are one message each way.
    pub(super) fn measures(&self) -> bool {
        !matches!(self.rule, LimitAlgorithm::Constant(_))
    }

    /// Takes a place for a call that is waited for so long.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(super) fn acquire(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Permit, Status> {
        let permit = Permit(self.clone());
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let admitted = match &self.rule {
            LimitAlgorithm::Constant(limit) => calls <= *limit,
            LimitAlgorithm::Auto(gradient) => gradient.admits(calls),
            LimitAlgorithm::Timeout(timely) => timely.admits(calls, timeout),
        };
        if admitted { Ok(permit) } else { Err(self.refusal(calls)) }
    }

    /// A call has ended, in one way or another.
    pub(super) fn record_end(&self, failure: Option<Code>, began: Instant, now: Instant) {
        let latency = now.saturating_duration_since(began);
        let outcome = match failure {
            None => SampleOutcome::Succeeded,
            // Refused, by whomever: that says nothing of how long calls take.
            Some(Code::ResourceExhausted) => return,
            Some(_) => SampleOutcome::Failed,
        };
        match &self.rule {
            LimitAlgorithm::Constant(_) => {}
            LimitAlgorithm::Auto(gradient) => gradient.record_end(outcome, latency, now),
            LimitAlgorithm::Timeout(timely) => timely.record_end(outcome, latency, now),
        }
    }

    /// In the words that clients know, of which the number is part (brpc `policy/baidu_rpc_protocol.cpp`).
    #[cold]
    fn refusal(&self, calls: usize) -> Status {
        self.incidents.count(match self.of {
            LimitScope::Server => Refusal::Concurrency,
            LimitScope::Method => Refusal::MethodConcurrency,
        });
        let limit = match &self.rule {
            LimitAlgorithm::Constant(limit) => *limit,
            LimitAlgorithm::Auto(gradient) => gradient.limit(),
            LimitAlgorithm::Timeout(_) => calls - 1,
        };
        Status::resource_exhausted(match self.of {
            LimitScope::Server => format!("Reached server's max_concurrency={limit}"),
            LimitScope::Method => format!("Reached the method's max_concurrency={limit}"),
        })
    }
}

/// A place among the calls that are being answered; given up when dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<ConcurrencyLimiter>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

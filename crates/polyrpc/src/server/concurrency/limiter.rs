use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polyrpc_core::{Code, Status};

use super::Concurrency;
use super::gradient::Gradient;
use super::timely::Timely;
use super::window::Outcome;
use crate::server::incidents::{Incidents, Refusal};

/// Counts the calls that are being answered, and says whether there may be one more.
#[derive(Debug)]
pub(in crate::server) struct Limiter {
    calls: AtomicUsize,
    rule: Rule,
    /// Whose calls it counts, in the words of who is refused.
    of: Of,
    incidents: Arc<Incidents>,
}

/// Whose calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Of {
    Server,
    Method,
}

#[derive(Debug)]
enum Rule {
    Constant(usize),
    Auto(Box<Gradient>),
    Timeout(Box<Timely>),
}

impl Limiter {
    /// `None` where there is nothing to limit.
    pub(in crate::server) fn new(limit: &Concurrency, of: Of, incidents: Arc<Incidents>) -> Option<Self> {
        let now = Instant::now();
        let rule = match limit {
            Concurrency::Unlimited => return None,
            Concurrency::Constant(number) => Rule::Constant(*number),
            Concurrency::Auto(limits) => {
                // Without randomness it still works, in step with its like.
                let seed = getrandom::u64().unwrap_or_default();
                Rule::Auto(Box::new(Gradient::new(limits.clone(), now, seed)))
            }
            Concurrency::Timeout(limits) => Rule::Timeout(Box::new(Timely::new(limits.clone(), now))),
        };
        Some(Self { calls: AtomicUsize::new(0), rule, of, incidents })
    }

    /// Whether it wants to know what calls take, and thus bothers with those only that are one message each way.
    pub(super) fn measures(&self) -> bool {
        !matches!(self.rule, Rule::Constant(_))
    }

    /// Takes a place for a call that is waited for so long.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(super) fn admit(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Permit, Status> {
        let permit = Permit(self.clone());
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let admitted = match &self.rule {
            Rule::Constant(limit) => calls <= *limit,
            Rule::Auto(gradient) => gradient.admits(calls),
            Rule::Timeout(timely) => timely.admits(calls, timeout),
        };
        if admitted { Ok(permit) } else { Err(self.refusal(calls)) }
    }

    /// A call has ended, in one way or another.
    pub(super) fn ended(&self, failure: Option<Code>, began: Instant, now: Instant) {
        let latency = now.saturating_duration_since(began);
        let outcome = match failure {
            None => Outcome::Succeeded,
            // Refused, by whomever: that says nothing of how long calls take.
            Some(Code::ResourceExhausted) => return,
            Some(_) => Outcome::Failed,
        };
        match &self.rule {
            Rule::Constant(_) => {}
            Rule::Auto(gradient) => gradient.ended(outcome, latency, now),
            Rule::Timeout(timely) => timely.ended(outcome, latency, now),
        }
    }

    /// In the words that clients know, of which the number is part (brpc `policy/baidu_rpc_protocol.cpp`).
    #[cold]
    fn refusal(&self, calls: usize) -> Status {
        self.incidents.count(match self.of {
            Of::Server => Refusal::Concurrency,
            Of::Method => Refusal::MethodConcurrency,
        });
        let limit = match &self.rule {
            Rule::Constant(limit) => *limit,
            Rule::Auto(gradient) => gradient.limit(),
            Rule::Timeout(_) => calls - 1,
        };
        Status::resource_exhausted(match self.of {
            Of::Server => format!("Reached server's max_concurrency={limit}"),
            Of::Method => format!("Reached the method's max_concurrency={limit}"),
        })
    }
}

/// A place among the calls that are being answered; given up when dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<Limiter>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

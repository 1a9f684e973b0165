use std::sync::Arc;
use std::time::Instant;

use polyrpc_core::{Code, Status};

use super::limiter::{ConcurrencyLimiter, Permit};
use crate::call::{Context, Outcome, OutcomeKind};
use crate::layer::{Call, Layer, Next, Side};

/// A limiter as a layer around methods.
#[derive(Debug)]
pub(in crate::server) struct LimitLayer(Arc<ConcurrencyLimiter>);

impl LimitLayer {
    pub(in crate::server) fn new(limiter: Arc<ConcurrencyLimiter>) -> Self {
        Self(limiter)
    }

    /// Does not read the clock: the duration of calls is not needed.
    async fn count(self: Arc<Self>, mut call: Call, next: Next) -> Outcome {
        let permit = match self.0.acquire(None) {
            Ok(permit) => permit,
            Err(status) => return Outcome::failed(status),
        };
        let _permit = hold_while_running(permit, &mut call, &next);
        next.call(call).await
    }

    async fn measure(self: Arc<Self>, mut call: Call, next: Next) -> Outcome {
        let arrived = call.context().and_then(Context::arrived);
        let began = arrived.unwrap_or_else(Instant::now);
        let deadline = call.context().and_then(Context::deadline);
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(began));
        let permit = match self.0.acquire(timeout) {
            Ok(permit) => permit,
            Err(status) => return Outcome::failed(status),
        };
        let _permit = hold_while_running(permit, &mut call, &next);
        let measured = MeasuredCall { limiter: self.0.clone(), began, deadline, ended: false };
        let outcome = next.call(call).await;
        measured.finish(&outcome);
        outcome
    }
}

impl Layer for LimitLayer {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        match self.0.needs_latency() {
            false => self.count(call, next).await,
            true if call.stream_type().is_unary() => self.measure(call, next).await,
            true => next.call(call).await,
        }
    }

    fn only_side(&self) -> Option<Side> {
        Some(Side::Server)
    }
}

/// Keeps the permit for as long as the handler runs: a blocking handler continues after its caller is gone, so the
/// permit is kept in its context.
fn hold_while_running(permit: Permit, call: &mut Call, next: &Next) -> Option<Permit> {
    let Some(cx) = call.context_mut().filter(|_| next.is_blocking()) else { return Some(permit) };
    match cx.extension_mut::<Permits>() {
        Some(Permits(permits)) => permits.push(permit),
        None => drop(cx.insert_extension(Permits(vec![permit]))),
    }
    None
}

/// The permits of a call, possibly of several limits.
struct Permits(Vec<Permit>);

/// A call whose duration is measured for a limiter.
struct MeasuredCall {
    limiter: Arc<ConcurrencyLimiter>,
    began: Instant,
    deadline: Option<Instant>,
    ended: bool,
}

impl MeasuredCall {
    fn finish(mut self, outcome: &Outcome) {
        self.ended = true;
        let failure = match &outcome.0 {
            OutcomeKind::CloseConnection => Some(Code::Unavailable),
            _ => outcome.failure().map(Status::code),
        };
        self.limiter.record_end(failure, self.began, Instant::now());
    }
}

impl Drop for MeasuredCall {
    /// A call that did not end in time has failed. A cancelled call is not counted.
    fn drop(&mut self) {
        let Some(deadline) = self.deadline.filter(|_| !self.ended) else { return };
        let now = Instant::now();
        if deadline <= now {
            self.limiter.record_end(Some(Code::DeadlineExceeded), self.began, now);
        }
    }
}

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use polyrpc_wire::{Code, Status};

use super::limiter::{Limiter, Permit};
use crate::Context;
use crate::codec::Body;
use crate::service::{Ending, Handling, Layer, Next};

/// A limiter before methods.
#[derive(Debug)]
pub(in crate::server) struct Limit(Arc<Limiter>);

impl Limit {
    pub(in crate::server) fn new(limiter: Arc<Limiter>) -> Self {
        Self(limiter)
    }

    /// Without a look at the clock: how long calls take is of no interest.
    fn count(&self, mut cx: Context, body: Body, next: Next<'_>) -> Result<Handling, Status> {
        let permit = keep(self.0.admit(None)?, &mut cx, &next);
        let handling = next.call(cx, body)?;
        let Some(permit) = permit else { return Ok(handling) };
        Ok(Box::pin(async move {
            let _permit = permit;
            handling.await
        }))
    }

    fn measure(&self, mut cx: Context, body: Body, next: Next<'_>) -> Result<Handling, Status> {
        let began = cx.arrived().unwrap_or_else(Instant::now);
        let deadline = cx.deadline();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(began));
        let permit = keep(self.0.admit(timeout)?, &mut cx, &next);
        match next.call(cx, body) {
            Ok(handling) => {
                let (limiter, ended) = (self.0.clone(), false);
                Ok(Box::pin(Measured { handling, limiter, began, deadline, ended, _permit: permit }))
            }
            Err(status) => {
                self.0.ended(Some(status.code()), began, Instant::now());
                Err(status)
            }
        }
    }
}

impl Layer for Limit {
    fn call(&self, cx: Context, body: Body, next: Next<'_>) -> Result<Handling, Status> {
        match self.0.measures() {
            false => self.count(cx, body, next),
            true if next.shape().is_unary() => self.measure(cx, body, next),
            true => next.call(cx, body),
        }
    }
}

/// Keeps a place for as long as the handler runs: one that holds its thread goes on when nobody waits for it any more,
/// and keeps it in its context.
fn keep(permit: Permit, cx: &mut Context, next: &Next<'_>) -> Option<Permit> {
    if !next.blocking() {
        return Some(permit);
    }
    match cx.attached_mut::<Places>() {
        Some(Places(places)) => places.push(permit),
        None => drop(cx.attach(Places(vec![permit]))),
    }
    None
}

/// Places that a call has, in several limits perhaps.
struct Places(Vec<Permit>);

/// A call whose end teaches a limiter something.
struct Measured {
    handling: Handling,
    limiter: Arc<Limiter>,
    began: Instant,
    deadline: Option<Instant>,
    ended: bool,
    _permit: Option<Permit>,
}

impl Future for Measured {
    type Output = Ending;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Ending> {
        let ending = ready!(self.handling.as_mut().poll(cx));
        self.ended = true;
        let failure = match &ending {
            Ending::Unauthenticated(status) | Ending::Corrupt(status) => Some(status.code()),
            Ending::CloseConnection => Some(Code::Unavailable),
            ending => ending.failure().map(Status::code),
        };
        self.limiter.ended(failure, self.began, Instant::now());
        Poll::Ready(ending)
    }
}

impl Drop for Measured {
    /// A call that did not end in time has failed. Of one that its caller gave up nothing is known.
    fn drop(&mut self) {
        let Some(deadline) = self.deadline.filter(|_| !self.ended) else { return };
        let now = Instant::now();
        if deadline <= now {
            self.limiter.ended(Some(Code::DeadlineExceeded), self.began, now);
        }
    }
}

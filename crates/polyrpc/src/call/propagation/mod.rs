//! Scope that the calls of a handler inherit from the call that it serves: the deadline of its caller, and the trace.
//!
//! While a handler is polled, both are [`current`]. A call by any client of the process then waits no longer than the
//! remaining time, sends that to the server in the protocol's own field, and propagates the trace. So a deadline
//! shrinks from hop to hop, whatever protocols the hops use, and a handler that is dropped since its caller cancelled
//! also cancels its own calls.
//!
//! Tasks that a handler spawns inherit nothing, as with [`tokio::task_local!`]: they may outlive the call. If they
//! should inherit, request it explicitly:
//!
//! ```
//! # async fn look_up() {}
//! # async fn handler() {
//! use polyrpc::propagation;
//!
//! tokio::spawn(propagation::scope(propagation::current(), look_up()));
//! # }
//! ```
//!
//! If a handler's own calls should not inherit, `propagation::scope(CallScope::default(), …)` prevents it.
//!
//! baidu_std, rpcx, gRPC and HTTP send the remaining time to the server, and carry traces in their user fields,
//! metadata and headers. fb_rpc, net/rpc and rest_rpc have no field for either: there only the caller's own wait is
//! bounded, and nothing is propagated.

mod call_trace;
mod trace;

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_core::{Metadata, Status};
use polyrpc_wire::Protocol;

pub use self::call_trace::{CallTrace, Phase, note};
pub use self::trace::{Trace, TraceParent};

pub(crate) use self::call_trace::phase_ended;

thread_local! {
    static CURRENT: RefCell<CallScope> = const { RefCell::new(CallScope::NOTHING) };
}

/// Returns the current scope; empty outside of handlers and [`scope`]s.
pub fn current() -> CallScope {
    // On a thread that is ending, the thread-local is already destroyed.
    CURRENT.try_with(|current| current.borrow().clone()).unwrap_or_default()
}

/// Returns whether the current trace [is recorded](Trace::is_recorded), at a lower cost than by the current scope.
pub fn is_recorded() -> bool {
    let is_recorded = |scope: &CallScope| scope.trace().is_some_and(Trace::is_recorded);
    CURRENT.try_with(|current| is_recorded(&current.borrow())).unwrap_or_default()
}

/// Makes this scope, and no other, current while the future is polled.
///
/// # Cancel safety
///
/// Dropping the returned future drops `future`.
pub async fn scope<F: Future>(mut inherited: CallScope, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| inherited.run(|| future.as_mut().poll(cx))).await
}

/// Scope that a call inherits from the call within which it is made.
#[derive(Clone, Default)]
pub struct CallScope {
    deadline: Option<Instant>,
    /// Shared, since it becomes current repeatedly.
    trace: Option<Arc<Trace>>,
    /// The record of the call, if it is recorded.
    record: Option<Arc<dyn CallTrace>>,
}

impl CallScope {
    const NOTHING: Self = Self { deadline: None, trace: None, record: None };

    /// Returns the scope for the handler of a call. It allocates only if the call belongs to a trace.
    pub(crate) fn from_call(deadline: Option<Instant>, metadata: &Metadata) -> Self {
        Self { deadline, trace: Trace::read(metadata).map(Arc::new), record: None }
    }

    /// Returns the deadline of the current work, if there is one.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the time left until the deadline, if there is one.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns the trace.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// Returns the scope with this deadline, unless it has an earlier one.
    #[must_use]
    pub fn with_deadline(self, deadline: Instant) -> Self {
        let earlier = self.deadline.map_or(deadline, |known| known.min(deadline));
        Self { deadline: Some(earlier), ..self }
    }

    /// Returns the scope as part of this trace.
    #[must_use]
    pub fn with_trace(self, trace: Trace) -> Self {
        Self { trace: Some(Arc::new(trace)), ..self }
    }

    /// Returns the scope of a call that is recorded.
    pub(crate) fn with_record(self, record: Arc<dyn CallTrace>) -> Self {
        Self { record: Some(record.clone()), ..self.with_trace(record.trace()) }
    }

    /// Makes this scope, and no other, current while `work` runs on this thread.
    pub fn run<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let _entered = ScopeGuard::new(self);
        work()
    }

    /// Returns the timeout of a call that has `timeout` by itself, bounded by the deadline.
    ///
    /// # Errors
    ///
    /// If the deadline has passed.
    pub(crate) fn bound(&self, timeout: Option<Duration>) -> Result<Option<Duration>, Status> {
        let Some(left) = self.remaining() else { return Ok(timeout) };
        if left.is_zero() {
            return Err(Status::deadline_exceeded("the deadline of the enclosing call has passed"));
        }
        Ok(Some(timeout.map_or(left, |timeout| timeout.min(left))))
    }

    /// Adds the trace to a call's metadata, if its protocol carries metadata.
    pub(crate) fn inject(&self, metadata: &mut Metadata, protocol: Protocol) {
        if let Some(trace) = &self.trace
            && carries_metadata(protocol)
        {
            trace.write(metadata);
            if protocol == Protocol::BaiduStd {
                trace.write_brpc(metadata);
            }
        }
    }
}

impl fmt::Debug for CallScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallScope")
            .field("deadline", &self.deadline)
            .field("trace", &self.trace)
            .finish_non_exhaustive()
    }
}

/// Returns whether calls of a protocol carry metadata.
pub(crate) fn carries_metadata(protocol: Protocol) -> bool {
    protocol.descriptor().capabilities.carries_metadata()
}

/// Makes a scope current until this is dropped; then the previous scope is current again. The scope is moved in and
/// out, without counting references or copying.
struct ScopeGuard<'i>(&'i mut CallScope);

impl<'i> ScopeGuard<'i> {
    fn new(inherited: &'i mut CallScope) -> Self {
        exchange(inherited);
        Self(inherited)
    }
}

impl Drop for ScopeGuard<'_> {
    fn drop(&mut self) {
        exchange(self.0);
    }
}

fn exchange(inherited: &mut CallScope) {
    // On a thread that is ending, the thread-local is already destroyed.
    let _ = CURRENT.try_with(|current| mem::swap(&mut *current.borrow_mut(), inherited));
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    fn until(deadline: Instant) -> CallScope {
        CallScope::default().with_deadline(deadline)
    }

    #[test]
    fn no_scope_is_current_outside_of_one() {
        let current = current();
        assert!(current.deadline().is_none() && current.remaining().is_none() && current.trace().is_none());
    }

    #[test]
    fn inner_scope_wins_and_the_outer_is_restored_even_after_a_panic() {
        let now = Instant::now();
        let (outer, inner) = (now + Duration::from_secs(2), now + Duration::from_secs(1));
        until(outer).run(|| {
            until(inner).run(|| assert_eq!(current().deadline(), Some(inner)));
            assert_eq!(current().deadline(), Some(outer));
            let panicked = std::panic::catch_unwind(|| CallScope::default().run(|| panic!("boom")));
            assert!(panicked.is_err());
            assert_eq!(current().deadline(), Some(outer));
            CallScope::default().run(|| assert_eq!(current().deadline(), None));
        });
        assert_eq!(current().deadline(), None);
    }

    #[tokio::test]
    async fn scope_is_current_only_while_its_future_is_polled() {
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut scoped = pin!(scope(until(deadline), async {
            assert_eq!(current().deadline(), Some(deadline));
            tokio::task::yield_now().await;
            assert_eq!(current().deadline(), Some(deadline));
        }));
        let first = poll_fn(|cx| Poll::Ready(scoped.as_mut().poll(cx))).await;
        assert!(first.is_pending());
        assert_eq!(current().deadline(), None);
        scoped.await;
    }

    #[test]
    fn earlier_deadline_wins() {
        let now = Instant::now();
        let (early, late) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        assert_eq!(until(early).with_deadline(late).deadline(), Some(early));
        assert_eq!(until(late).with_deadline(early).deadline(), Some(early));
    }

    #[test]
    fn call_inherits_the_remaining_time_and_fails_if_none_is_left() {
        let second = Duration::from_secs(1);
        assert_eq!(CallScope::default().bound(None).unwrap(), None);
        let left = until(Instant::now() + 10 * second);
        assert_eq!(left.bound(Some(second)).unwrap(), Some(second));
        for own in [None, Some(20 * second)] {
            let bound = left.bound(own).unwrap().unwrap();
            assert!(bound > 9 * second && bound <= 10 * second, "{bound:?}");
        }
        let late = until(Instant::now()).bound(Some(second)).unwrap_err();
        assert_eq!(late.code(), polyrpc_core::Code::DeadlineExceeded);
    }
}

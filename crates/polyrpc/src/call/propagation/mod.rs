//! What the calls that a handler makes have from the call that it serves: how long its caller still waits, and which
//! trace it belongs to.
//!
//! While a handler is polled, both are [`current`]. A call that any client of the process makes then waits no longer
//! than what is left, tells the server so in its protocol's own field, and carries the trace on. So a deadline shrinks
//! from hop to hop, whatever protocols the hops speak, and a handler that is dropped since its caller gave up takes its
//! calls with it.
//!
//! Tasks that a handler spawns inherit nothing, as by [`tokio::task_local!`]: they may outlive the call. Where they
//! shall inherit, it is said:
//!
//! ```
//! # async fn look_up() {}
//! # async fn handler() {
//! use polyrpc::task;
//!
//! tokio::spawn(task::scope(task::current(), look_up()));
//! # }
//! ```
//!
//! And where a handler's own calls shall not, `task::scope(CallScope::default(), …)` keeps it from them.
//!
//! baidu_std, rpcx, gRPC and HTTP tell the server what is left, and carry traces in their user fields, metadata and
//! headers. fb_rpc, net/rpc and rest_rpc have room for neither: there the caller's own waiting is bounded, and nothing
//! travels on.

mod trace;

use std::cell::RefCell;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_core::{Metadata, Status};
use polyrpc_wire::Protocol;

pub use self::trace::{NoTraceParent, Trace, TraceParent};

thread_local! {
    static CURRENT: RefCell<CallScope> = const { RefCell::new(CallScope::NOTHING) };
}

/// What is current now; nothing outside of handlers and [`scope`]s.
pub fn current() -> CallScope {
    // On a thread that is ending, what was current there is gone.
    CURRENT.try_with(|current| current.borrow().clone()).unwrap_or_default()
}

/// Lets this, and nothing else, be current while the future is polled.
///
/// # Cancel safety
///
/// Dropping what is returned drops the future.
pub async fn scope<F: Future>(mut inherited: CallScope, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| inherited.run(|| future.as_mut().poll(cx))).await
}

/// What a call inherits from the one within which it is made.
#[derive(Debug, Clone, Default)]
pub struct CallScope {
    deadline: Option<Instant>,
    /// Shared, since it becomes current again and again.
    trace: Option<Arc<Trace>>,
}

impl CallScope {
    const NOTHING: Self = Self { deadline: None, trace: None };

    /// What the handler of a call is to pass on. It allocates only if the call belongs to a trace.
    pub(crate) fn from_call(deadline: Option<Instant>, metadata: &Metadata) -> Self {
        Self { deadline, trace: Trace::read(metadata).map(Arc::new) }
    }

    /// The deadline of what is done here, if there is one.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How long somebody still waits for what is done here, if that is known.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The trace it belongs to.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// The same with this deadline, unless there is an earlier one.
    #[must_use]
    pub fn with_deadline(self, deadline: Instant) -> Self {
        let earlier = self.deadline.map_or(deadline, |known| known.min(deadline));
        Self { deadline: Some(earlier), ..self }
    }

    /// The same as part of this trace.
    #[must_use]
    pub fn with_trace(self, trace: Trace) -> Self {
        Self { trace: Some(Arc::new(trace)), ..self }
    }

    /// Lets this, and nothing else, be current while `work` runs on this thread.
    pub fn run<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let _entered = ScopeGuard::new(self);
        work()
    }

    /// How long a call may wait that would wait so long by itself.
    ///
    /// # Errors
    ///
    /// If the deadline has passed.
    pub(crate) fn bound(&self, timeout: Option<Duration>) -> Result<Option<Duration>, Status> {
        let Some(left) = self.remaining() else { return Ok(timeout) };
        if left.is_zero() {
            return Err(Status::deadline_exceeded("the call within which it was to be made is out of time"));
        }
        Ok(Some(timeout.map_or(left, |timeout| timeout.min(left))))
    }

    /// Writes the trace beside a call, where its protocol has room for it.
    pub(crate) fn inject(&self, metadata: &mut Metadata, protocol: Protocol) {
        if let Some(trace) = &self.trace
            && carries_metadata(protocol)
        {
            trace.write(metadata);
        }
    }
}

/// Whether calls of a protocol carry metadata.
pub(crate) fn carries_metadata(protocol: Protocol) -> bool {
    protocol.descriptor().capabilities.carries_metadata()
}

/// Something that is current until this is dropped; then what was current before is again. It is moved there and back,
/// so that nothing is counted or copied.
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
    // On a thread that is ending nothing is current, before and after.
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
    fn nothing_is_current_outside_of_a_scope() {
        let current = current();
        assert!(current.deadline().is_none() && current.remaining().is_none() && current.trace().is_none());
    }

    #[test]
    fn the_inner_scope_counts_and_the_outer_is_there_again_behind_it_even_behind_a_panic() {
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
    async fn a_scope_is_current_whenever_its_future_is_polled_and_at_no_other_time() {
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
    fn the_earlier_deadline_counts() {
        let now = Instant::now();
        let (early, late) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        assert_eq!(until(early).with_deadline(late).deadline(), Some(early));
        assert_eq!(until(late).with_deadline(early).deadline(), Some(early));
    }

    #[test]
    fn a_call_waits_no_longer_than_what_is_left_and_is_not_made_when_nothing_is() {
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

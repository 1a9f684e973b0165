use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polyrpc_wire::{Status, StreamId};
use tokio::time::{Sleep, sleep_until};

use crate::service::{Ending, Handling};
use crate::task::Inherited;

/// The calls of one connection that were not answered at once.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    /// Made when the first call waits: most connections never need it.
    running: Option<Box<FuturesUnordered<Running<T>>>>,
    /// How many of them wait for an answer. The others are streams of calls that were answered.
    calls: usize,
    /// Calls being answered over all connections of the server.
    total: Arc<AtomicUsize>,
}

impl<T: Send + 'static> InFlight<T> {
    pub(super) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { running: None, calls: 0, total }
    }

    /// Whether nothing goes on any more.
    pub(super) fn is_empty(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.is_empty())
    }

    /// How many calls wait for an answer.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Takes on a call that did not answer when it was first polled.
    pub(super) fn push(&mut self, call: Running<T>) {
        if call.way != Way::Answered {
            self.calls += 1;
            self.total.fetch_add(1, Ordering::Relaxed);
        }
        self.running.get_or_insert_default().push(call);
    }

    /// The next call that has ended, if one has.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Option<Ended<T>> {
        let running = self.running.as_mut().filter(|running| !running.is_empty())?;
        match running.poll_next_unpin(cx) {
            Poll::Ready(Some(ended)) => {
                if ended.way != Way::Answered {
                    self.calls -= 1;
                    self.total.fetch_sub(1, Ordering::Relaxed);
                }
                Some(ended)
            }
            _ => None,
        }
    }

    /// Ends a call that nobody waits for, if it is still here; its handler is dropped at once. The peers bound how
    /// many calls a connection may have, and few are cancelled, so that they are searched.
    pub(super) fn cancel(&mut self, stream: StreamId) {
        let running = self.running.iter_mut().flat_map(|running| running.iter_mut());
        if let Some(call) = running.into_iter().find(|call| call.stream == Some(stream)) {
            call.cancel();
        }
    }

    /// Ends every call whose messages come or leave one by one.
    pub(super) fn cancel_streams(&mut self) {
        let running = self.running.iter_mut().flat_map(|running| running.iter_mut());
        running.filter(|call| call.way != Way::Whole).for_each(Running::cancel);
    }
}

/// A call that has ended.
#[derive(Debug)]
pub(super) struct Ended<T> {
    /// What its answer needs.
    pub(super) owed: T,
    /// How; `None` if it was cancelled, so that nobody waits for an answer.
    pub(super) ending: Option<Ending>,
    /// Its stream, if its messages came or left one by one.
    pub(super) streamed: Option<StreamId>,
    way: Way,
}

impl<T> Drop for InFlight<T> {
    fn drop(&mut self) {
        self.total.fetch_sub(self.calls, Ordering::Relaxed);
    }
}

/// A call being answered, with what its answer needs.
pub(super) struct Running<T> {
    /// `None` once it was cancelled.
    handling: Option<Handling>,
    owed: Option<T>,
    deadline: Option<Pin<Box<Sleep>>>,
    /// What the calls that its handler makes have from it.
    inherited: Inherited,
    /// The name by which the peer may cancel it.
    stream: Option<StreamId>,
    way: Way,
    /// Wakes it when it was cancelled; kept only if it can be.
    waker: Option<Waker>,
}

/// How the messages of a call come and leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// One each way, as a whole.
    Whole,
    /// One by one in a direction at least.
    Streamed,
    /// One by one on a stream that goes on beside the connection's calls, since its own was answered. It counts as none:
    /// the streams of a connection have a limit of their own.
    Answered,
}

impl<T> Running<T> {
    pub(super) fn new(
        handling: Handling,
        owed: T,
        deadline: Option<Instant>,
        inherited: Inherited,
        stream: Option<StreamId>,
        way: Way,
    ) -> Self {
        let deadline = deadline.map(|deadline| Box::pin(sleep_until(deadline.into())));
        Self { handling: Some(handling), owed: Some(owed), deadline, inherited, stream, way, waker: None }
    }

    fn cancel(&mut self) {
        self.handling = None;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn poll_ending(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ending>> {
        let Some(handling) = &mut self.handling else { return Poll::Ready(None) };
        if let Poll::Ready(ending) = self.inherited.during(|| poll_guarded(handling, cx)) {
            return Poll::Ready(Some(ending));
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(too_late()));
        }
        if self.stream.is_some() {
            self.waker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        }
        Poll::Pending
    }
}

// Nothing in it is pinned in place: the future and the timer are boxed.
impl<T> Unpin for Running<T> {}

impl<T> Future for Running<T> {
    type Output = Ended<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ending = ready!(self.poll_ending(cx));
        // Before its end is told: what it had taken or made is told with it.
        self.handling = None;
        let owed = self.owed.take().expect("a call ends once");
        let streamed = self.stream.filter(|_| self.way != Way::Whole);
        Poll::Ready(Ended { owed, ending, streamed, way: self.way })
    }
}

impl<T> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// Polls a handler; its panic is the end of its call and of nothing else.
pub(super) fn poll_guarded(handling: &mut Handling, cx: &mut Context<'_>) -> Poll<Ending> {
    catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx)))
        .unwrap_or_else(|panic| Poll::Ready(Ending::panicked(&*panic)))
}

#[cold]
fn too_late() -> Ending {
    Ending::failed(Status::deadline_exceeded("the method did not answer in time"))
}

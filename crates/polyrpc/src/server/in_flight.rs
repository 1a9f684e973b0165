use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polyrpc_wire::{Fault, Reply, Status};
use tokio::time::{Sleep, sleep_until};

use crate::service::{Ending, Handling};

/// The calls of one connection that were not answered at once.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    /// Made when the first call waits: most connections never need it.
    running: Option<Box<FuturesUnordered<Running<T>>>>,
    /// Calls being answered over all connections of the server.
    total: Arc<AtomicUsize>,
}

impl<T: Send + 'static> InFlight<T> {
    pub(super) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { running: None, total }
    }

    pub(super) fn len(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.len())
    }

    /// Takes on a call that did not answer when it was first polled.
    pub(super) fn push(&mut self, call: Running<T>) {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.running.get_or_insert_default().push(call);
    }

    /// The next call that has ended, if one has.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Option<(T, Ending)> {
        let running = self.running.as_mut().filter(|running| !running.is_empty())?;
        match running.poll_next_unpin(cx) {
            Poll::Ready(Some(ended)) => {
                self.total.fetch_sub(1, Ordering::Relaxed);
                Some(ended)
            }
            _ => None,
        }
    }
}

impl<T> Drop for InFlight<T> {
    fn drop(&mut self) {
        let dropped = self.running.as_ref().map_or(0, |running| running.len());
        self.total.fetch_sub(dropped, Ordering::Relaxed);
    }
}

/// A call being answered, with what its answer needs.
pub(super) struct Running<T> {
    handling: Handling,
    ticket: Option<T>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T> Running<T> {
    pub(super) fn new(handling: Handling, ticket: T, deadline: Option<Instant>) -> Self {
        let deadline = deadline.map(|deadline| Box::pin(sleep_until(deadline.into())));
        Self { handling, ticket: Some(ticket), deadline }
    }
}

// Nothing in it is pinned in place: the future and the timer are boxed.
impl<T> Unpin for Running<T> {}

impl<T> Future for Running<T> {
    type Output = (T, Ending);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ending = match poll_guarded(&mut self.handling, cx) {
            Poll::Ready(ending) => ending,
            Poll::Pending => match &mut self.deadline {
                None => return Poll::Pending,
                Some(deadline) => match deadline.as_mut().poll(cx) {
                    Poll::Ready(()) => too_late(),
                    Poll::Pending => return Poll::Pending,
                },
            },
        };
        let ticket = self.ticket.take().expect("a call ends once");
        Poll::Ready((ticket, ending))
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
        .unwrap_or_else(|panic| Poll::Ready(panicked(&*panic)))
}

#[cold]
fn too_late() -> Ending {
    Ending::Reply(Reply::failure(Status::deadline_exceeded("the method did not answer in time")))
}

/// The answer to a call whose handler panicked, in the words of rpcx (`server/service.go`), whose clients
/// may look for them.
#[cold]
pub(super) fn panicked(panic: &(dyn Any + Send)) -> Ending {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("the handler panicked");
    let status = Status::internal(format!("[service internal error]: {text}")).with_fault(Fault::Us);
    Ending::Reply(Reply::failure(status))
}

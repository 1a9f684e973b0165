use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polyrpc_core::{Status, StreamId};
use tokio::time::{Sleep, sleep_until};

use super::connections::ConnectionHandle;
use super::poll_round;
use crate::call::{CallSite, Outcome, OutcomeKind, ResponseFuture};
use crate::memory_budget::Account;
use crate::propagation::CallScope;

/// The pending calls of one connection.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    /// Created with the first pending call: most connections never need it.
    running: Option<Box<FuturesUnordered<InFlightCall<T>>>>,
    /// Calls that were cancelled since they were last polled.
    cancelled: Vec<StreamId>,
    /// The account in which they count.
    account: Arc<Account>,
}

/// Approximate memory of a pending call without its message: the future of its handler, its context, its timer.
const CALL_OVERHEAD_BYTES: usize = 3 << 9;

/// The part of [`CALL_OVERHEAD_BYTES`] that is the future.
const TYPICAL_FUTURE_BYTES: usize = 1 << 10;

/// Returns the bytes of a handler's future beyond those that [`CALL_OVERHEAD_BYTES`] includes: the future of a proxy has
/// several KiB.
fn excess_future_bytes(handling: &ResponseFuture) -> usize {
    size_of_val(&**handling).saturating_sub(TYPICAL_FUTURE_BYTES)
}

impl<T: Send + 'static> InFlight<T> {
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self { running: None, cancelled: Vec::new(), account }
    }

    /// Returns whether no call is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.is_empty())
    }

    /// Returns the number of calls in flight.
    pub(super) fn len(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.len())
    }

    /// Adds a call that was pending after its first poll.
    pub(super) fn push(&mut self, mut call: InFlightCall<T>) {
        call.held += CALL_OVERHEAD_BYTES + call.handling.as_ref().map_or(0, excess_future_bytes);
        self.account.keep(call.held);
        count(call.counted, &self.account);
        self.running.get_or_insert_default().push(call);
    }

    /// Returns the next finished call, if any. Others may be ready if the [round](poll_round) is over.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Option<FinishedCall<T>> {
        if !self.cancelled.is_empty() {
            self.drop_cancelled();
        }
        let running = self.running.as_mut().filter(|running| !running.is_empty())?;
        match running.poll_next_unpin(cx) {
            Poll::Ready(Some(ended)) => {
                release(ended.counted, ended.held, &self.account);
                Some(ended)
            }
            _ => None,
        }
    }

    /// Cancels a call, if it is still in flight. Its handler is dropped when calls are next polled.
    pub(super) fn cancel(&mut self, stream: StreamId) {
        if !self.is_empty() {
            self.cancelled.push(stream);
        }
    }

    /// Drops all of them together: a peer may cancel each of a thousand calls in one write.
    #[cold]
    fn drop_cancelled(&mut self) {
        let mut cancelled = std::mem::take(&mut self.cancelled);
        cancelled.sort_unstable();
        let running = self.running.iter_mut().flat_map(|running| running.iter_mut());
        let is_cancelled = |call: &&mut InFlightCall<T>| {
            call.stream.is_some_and(|stream| cancelled.binary_search(&stream).is_ok())
        };
        running.filter(is_cancelled).for_each(InFlightCall::cancel);
    }

    /// Fails a call of a stream; its handler is dropped at once.
    pub(super) fn fail(&mut self, stream: StreamId, status: Status) {
        let running = self.running.iter_mut().flat_map(|running| running.iter_mut());
        if let Some(call) = running.into_iter().find(|call| call.stream == Some(stream)) {
            call.fail(status);
        }
    }

    /// Fails every call whose message has not arrived.
    pub(super) fn fail_gathering(&mut self, status: &Status) {
        let running = self.running.iter_mut().flat_map(|running| running.iter_mut());
        running.filter(|call| call.gathering.is_some()).for_each(|call| call.fail(status.clone()));
    }

    /// Aborts every call, since their responses are no longer awaited; returns how many there were.
    pub(super) fn abort_all(&mut self) -> usize {
        let Some(mut running) = self.running.take() else { return 0 };
        running.iter_mut().for_each(|call| release(call.counted, call.held, &self.account));
        running.len()
    }

    /// Cancels every streaming call.
    pub(super) fn cancel_streams(&mut self) {
        let running = self.running.iter_mut().flat_map(|running| running.iter_mut());
        running.filter(|call| call.delivery != Delivery::Whole).for_each(InFlightCall::cancel);
    }
}

/// A finished call.
#[derive(Debug)]
pub(super) struct FinishedCall<T> {
    /// The state needed for its response.
    pub(super) pending: T,
    /// Its outcome; `None` if it was cancelled, so that no response is expected.
    pub(super) outcome: Option<Outcome>,
    /// Its stream, if it was a streaming call.
    pub(super) streamed: Option<StreamId>,
    counted: Option<CountedAs>,
    held: usize,
}

impl<T> Drop for InFlight<T> {
    fn drop(&mut self) {
        let running = self.running.iter_mut().flat_map(|running| running.iter_mut());
        running.for_each(|call| release(call.counted, call.held, &self.account));
    }
}

/// The quota in which a pending call counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedAs {
    Call,
    Stream,
}

fn count(counted: Option<CountedAs>, account: &Account) {
    match counted {
        Some(CountedAs::Call) => account.add_call(),
        Some(CountedAs::Stream) => account.add_stream(),
        None => {}
    }
}

/// Releases the count and the bytes of a call that has ended.
fn release(counted: Option<CountedAs>, held: usize, account: &Account) {
    account.release(held);
    match counted {
        Some(CountedAs::Call) => account.remove_call(),
        Some(CountedAs::Stream) => account.remove_stream(),
        None => {}
    }
}

/// Waits for the single message of a call, which counts only once that has arrived.
pub(super) struct AwaitMessage {
    pub(super) gathered: AwaitedMessageFuture,
    pub(super) entry: Arc<ConnectionHandle>,
}

pub(super) type AwaitedMessageFuture =
    Pin<Box<dyn Future<Output = Result<AwaitedMessage, MessageRejection>> + Send>>;

/// Reason why a call is not dispatched to its method.
pub(super) enum MessageRejection {
    Failed(Status),
    /// Its credential was rejected.
    Unproven(Status),
}

impl From<Status> for MessageRejection {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

/// A call whose message has arrived.
pub(super) struct AwaitedMessage {
    /// Size of the message in bytes.
    pub(super) bytes: usize,
    pub(super) counted: CountedAs,
    /// Whether it is introspection of the server itself, to which the call limit does not apply.
    pub(super) exempt: bool,
    /// Dispatches it to its method.
    pub(super) start: Box<dyn FnOnce() -> ResponseFuture + Send>,
}

/// A call in progress, with the state needed for its response.
pub(super) struct InFlightCall<T> {
    /// `None` while it waits for its message, and after it was cancelled.
    handling: Option<ResponseFuture>,
    /// Where a panic is reported.
    site: CallSite,
    /// Set while its message has not arrived.
    gathering: Option<Box<AwaitMessage>>,
    /// Why it was aborted, if the peer expects an answer.
    failure: Option<Status>,
    pending: Option<T>,
    deadline: Option<Pin<Box<Sleep>>>,
    /// Scope that the calls of its handler inherit.
    inherited: CallScope,
    /// The id by which the peer may cancel it.
    stream: Option<StreamId>,
    delivery: Delivery,
    counted: Option<CountedAs>,
    /// Bytes that it holds.
    held: usize,
    /// Wakes it after it was cancelled; kept only if it can be cancelled.
    waker: Option<Waker>,
}

/// How the messages of a call are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// One message each way, as a whole.
    Whole,
    /// One by one in at least one direction.
    Streamed,
    /// One by one on an attached stream, which stays open after the response of its own call.
    Answered,
}

impl<T> InFlightCall<T> {
    pub(super) fn new(
        handling: ResponseFuture,
        site: CallSite,
        pending: T,
        deadline: Option<Instant>,
        inherited: CallScope,
        stream: Option<StreamId>,
        delivery: Delivery,
    ) -> Self {
        let deadline = deadline.map(|deadline| Box::pin(sleep_until(deadline.into())));
        let counted = Some(if delivery == Delivery::Whole { CountedAs::Call } else { CountedAs::Stream });
        Self {
            handling: Some(handling),
            site,
            gathering: None,
            failure: None,
            pending: Some(pending),
            deadline,
            inherited,
            stream,
            delivery,
            counted,
            held: 0,
            waker: None,
        }
    }

    /// Creates a call whose message has not arrived.
    pub(super) fn with_pending_message(
        gathering: AwaitMessage,
        site: CallSite,
        pending: T,
        deadline: Option<Instant>,
        inherited: CallScope,
        stream: Option<StreamId>,
    ) -> Self {
        let nothing = Box::pin(std::future::pending());
        let running = Self::new(nothing, site, pending, deadline, inherited, stream, Delivery::Streamed);
        Self { handling: None, gathering: Some(Box::new(gathering)), counted: None, ..running }
    }

    /// Returns the same call, holding this many bytes.
    pub(super) fn with_held_bytes(self, bytes: usize) -> Self {
        Self { held: bytes, ..self }
    }

    fn fail(&mut self, status: Status) {
        self.failure = Some(status);
        self.cancel();
    }

    fn cancel(&mut self) {
        self.handling = None;
        self.gathering = None;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn poll_ending(&mut self, cx: &mut Context<'_>) -> Poll<Option<Outcome>> {
        if self.gathering.is_some()
            && let Poll::Ready(Err(why)) = self.poll_gathered(cx)
        {
            return Poll::Ready(Some(match why {
                MessageRejection::Failed(status) => Outcome::failed(status),
                MessageRejection::Unproven(status) => OutcomeKind::Unauthenticated(status).into(),
            }));
        }
        if self.gathering.is_some() {
            return self.poll_deadline(cx).map(Some);
        }
        let Some(handling) = &mut self.handling else {
            return Poll::Ready(self.failure.take().map(Outcome::failed));
        };
        if let Poll::Ready(outcome) = self.inherited.run(|| poll_guarded(handling, || self.site.clone(), cx))
        {
            return Poll::Ready(Some(outcome));
        }
        self.poll_deadline(cx).map(Some)
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(deadline_exceeded_outcome());
        }
        if self.stream.is_some() {
            self.waker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        }
        Poll::Pending
    }

    /// Dispatches the call to its method once its message has arrived, unless its time is up.
    fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), MessageRejection>> {
        let Some(gathering) = &mut self.gathering else { return Poll::Ready(Ok(())) };
        let AwaitedMessage { bytes, counted, exempt, start } = ready!(gathering.gathered.as_mut().poll(cx))?;
        let entry = gathering.entry.clone();
        self.gathering = None;
        match counted {
            CountedAs::Call if exempt => {}
            CountedAs::Call => entry.admit_call()?,
            CountedAs::Stream => entry.admit_stream()?,
        }
        let handling = self.inherited.run(start);
        let more = bytes + excess_future_bytes(&handling);
        self.handling = Some(handling);
        (self.counted, self.held) = (Some(counted), self.held + more);
        count(self.counted, &entry.account);
        entry.account.keep(more);
        Poll::Ready(Ok(()))
    }
}

// Nothing in it is pinned in place: the future and the timer are boxed.
impl<T> Unpin for InFlightCall<T> {}

impl<T> Future for InFlightCall<T> {
    type Output = FinishedCall<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !poll_round::has_time() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let outcome = ready!(self.poll_ending(cx));
        // Before its end is reported: what the handler holds is released first.
        self.handling = None;
        self.gathering = None;
        let pending = self.pending.take().expect("a call ends once");
        let streamed = self.stream.filter(|_| self.delivery != Delivery::Whole);
        Poll::Ready(FinishedCall { pending, outcome, streamed, counted: self.counted, held: self.held })
    }
}

impl<T> fmt::Debug for InFlightCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightCall").finish_non_exhaustive()
    }
}

/// Polls a handler. Its panic ends only its own call, and is reported with the call's site.
pub(super) fn poll_guarded(
    handling: &mut ResponseFuture,
    site: impl FnOnce() -> CallSite,
    cx: &mut Context<'_>,
) -> Poll<Outcome> {
    catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx)))
        .unwrap_or_else(|panic| Poll::Ready(site().handle_panic(&*panic)))
}

#[cold]
fn deadline_exceeded_outcome() -> Outcome {
    Outcome::failed(Status::deadline_exceeded("the method did not answer in time"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use polyrpc_wire::Protocol;

    use super::*;
    use crate::call::{ConnectionFacts, Peer};
    use crate::memory_budget::MemoryBudget;

    fn call(handling: ResponseFuture) -> InFlightCall<()> {
        let facts = ConnectionFacts::new(Protocol::Grpc, Peer::InProcess, None);
        let site = CallSite::new(Arc::new(facts), None);
        InFlightCall::new(handling, site, (), None, CallScope::default(), None, Delivery::Streamed)
    }

    fn account() -> Arc<Account> {
        Arc::new(MemoryBudget::new(1 << 30).account())
    }

    #[test]
    fn calls_that_are_ready_together_are_polled_in_several_rounds() {
        const CALLS: usize = 100;
        let polled = Arc::<AtomicUsize>::default();
        let mut in_flight = InFlight::new(account());
        for _ in 0..CALLS {
            let polled = polled.clone();
            in_flight.push(call(Box::pin(poll_fn(move |_| {
                polled.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(200));
                Poll::<Outcome>::Pending
            }))));
        }
        let mut cx = Context::from_waker(Waker::noop());
        let mut rounds = Vec::new();
        while polled.load(Ordering::Relaxed) < CALLS {
            let before = polled.load(Ordering::Relaxed);
            poll_round::begin();
            assert!(in_flight.poll_ended(&mut cx).is_none());
            rounds.push(polled.load(Ordering::Relaxed) - before);
            assert!(rounds.len() <= CALLS);
        }
        assert!(rounds.len() > 1 && rounds.iter().all(|polled| *polled <= 16), "{rounds:?}");
    }

    #[test]
    fn long_future_of_a_handler_counts_as_memory() {
        let account = account();
        let mut in_flight = InFlight::new(account.clone());
        in_flight.push(call(Box::pin(pending())));
        assert_eq!(account.kept(), CALL_OVERHEAD_BYTES);
        in_flight.push(call(Box::pin(async {
            let state = [1_u8; 8 << 10];
            pending::<()>().await;
            Outcome::failed(Status::internal(state[4].to_string()))
        })));
        assert!(account.kept() >= 2 * CALL_OVERHEAD_BYTES + (7 << 10), "{}", account.kept());
        assert_eq!(in_flight.abort_all(), 2);
        assert_eq!(account.kept(), 0);
    }
}

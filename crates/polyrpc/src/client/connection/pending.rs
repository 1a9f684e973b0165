use std::collections::VecDeque;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use polyrpc_core::{CallId, Code, Fault, Head, Message, Reply, Status};

use super::call_counts::CallCounts;
use super::keepalive::READ_GRACE;
use crate::client::retryable::counts_against_server;
use crate::runtime::now;

/// Calls in flight on one connection.
///
/// A call's id consists of its slot and the generation of the slot, so that a late reply to an abandoned call never
/// reaches another one.
#[derive(Debug, Default)]
pub(in crate::client) struct PendingCalls {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Generation of new slots: no earlier slot had a later one when it was dropped.
    first: u64,
    /// The latest generation of all slots.
    latest: u64,
    /// Unary calls in flight.
    unary: usize,
    /// Streaming calls that have not ended.
    opened: usize,
    /// Bytes of replies that were received and not taken, and of messages that were not consumed; `None` if they are not
    /// counted.
    unread: Option<usize>,
    /// Calls so far, and those that failed through no fault of their callers.
    calls: u64,
    failures: u64,
    /// Whether a call was given up, whose response may still come.
    abandoned: bool,
    /// Lower bound of the deadlines of the waiting calls. It may be too early: calls that end do not update it.
    earliest: Option<Instant>,
}

#[derive(Debug)]
struct Slot {
    generation: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting {
        waker: Waker,
        deadline: Option<Instant>,
    },
    Ended(Result<Reply, Status>),
    /// Boxed, so that unary calls do not pay for its size.
    Opened(Box<StreamState>),
}

/// Streaming call.
#[derive(Debug, Default)]
pub(in crate::client) struct StreamState {
    deadline: Option<Instant>,
    /// Idle timeout, if there is one: the deadline is then this long after the last message.
    idle: Option<Duration>,
    /// The extended deadline, once the idle timeout has passed: the socket is read before the stream ends.
    extended: Option<Instant>,
    arrived: ReceivedMessages,
    /// Its part of the unread bytes.
    unread: usize,
    /// Its end was taken. It is kept for its unread bytes.
    is_over: bool,
    /// Waker of the task that receives.
    pub(super) taker: Option<Waker>,
    /// Waker of the task that sends.
    pub(in crate::client) sender: Option<Waker>,
    /// Whether the sender waits for the outbox, not for the peer.
    pub(in crate::client) held: bool,
}

/// Received messages of a streaming call that were not taken. Flow control limits what the peer sends ahead.
#[derive(Debug, Default)]
pub(in crate::client) struct ReceivedMessages {
    pub(in crate::client) head: Option<Head>,
    pub(in crate::client) messages: VecDeque<Message>,
    /// End of the call, after the messages.
    pub(in crate::client) end: Option<Reply>,
}

/// Maximum number of waiting messages of a call, however small. The protocol's limit of bytes is reached much earlier.
const MAX_WAITING: usize = 1 << 20;

/// Number of bits of a slot's index: the low bits of the id. A call beyond them is rejected.
const INDEX_BITS: u32 = 20;

/// Maximum number of slots that are kept while no call is in flight.
const MAX_KEPT: usize = 8 << 10;

impl PendingCalls {
    /// Counts the bytes of replies that are not taken, and of messages that are not consumed.
    pub(super) fn with_byte_counts() -> Self {
        Self { unread: Some(0), ..Self::default() }
    }

    /// Bytes of replies that were received and not taken, and of messages that were not consumed; 0 if they are not
    /// counted.
    pub(super) fn unread(&self) -> usize {
        self.unread.unwrap_or(0)
    }

    /// Adds a message that a streaming call has received. Returns it if there is no such call, and whether too many
    /// messages wait already.
    pub(super) fn deliver(
        &mut self,
        id: CallId,
        message: Message,
        wakers: &mut Vec<Waker>,
    ) -> Result<(), DeliveryError> {
        let counts = self.unread.is_some();
        let Some(opened) = self.stream_mut(id) else { return Err(DeliveryError::NoCall(message)) };
        let bytes = message.body.len();
        if !opened.deliver(message, wakers) {
            return Err(DeliveryError::TooMany);
        }
        if counts {
            opened.unread += bytes;
            self.unread = self.unread.map(|unread| unread + bytes);
        }
        Ok(())
    }

    /// Records that bytes of a streaming call's messages were consumed.
    pub(super) fn record_consumed(&mut self, id: CallId, bytes: usize) {
        if self.unread.is_none() {
            return;
        }
        let Some(Slot { state: State::Opened(opened), .. }) = self.slot(id) else { return };
        let bytes = bytes.min(opened.unread);
        opened.unread -= bytes;
        let is_forgotten = opened.is_over && opened.unread == 0;
        self.unread = self.unread.map(|unread| unread.saturating_sub(bytes));
        if is_forgotten {
            self.remove(id);
        }
    }

    /// Registers a unary call; `None` if there are too many.
    pub(in crate::client) fn insert(&mut self, waker: Waker, deadline: Option<Instant>) -> Option<CallId> {
        let id = self.occupy_slot(State::Waiting { waker, deadline }, deadline)?;
        self.unary += 1;
        self.calls += 1;
        Some(id)
    }

    /// Registers a streaming call; `None` if there are too many.
    pub(in crate::client) fn open(&mut self, deadline: Option<Instant>) -> Option<CallId> {
        let opened = StreamState { deadline, ..StreamState::default() };
        let id = self.occupy_slot(State::Opened(Box::new(opened)), deadline)?;
        self.opened += 1;
        self.calls += 1;
        Some(id)
    }

    /// Puts a call into a free slot; `None` if there are too many.
    fn occupy_slot(&mut self, state: State, deadline: Option<Instant>) -> Option<CallId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() >= 1 << INDEX_BITS => return None,
            None => {
                self.slots.push(Slot { generation: self.first, state: State::Free });
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.state = state;
        self.earliest = match (self.earliest, deadline) {
            (Some(earliest), Some(deadline)) => Some(earliest.min(deadline)),
            (earliest, deadline) => earliest.or(deadline),
        };
        Some(CallId(slot.generation << INDEX_BITS | u64::from(index)))
    }

    /// Returns the counts of the calls so far.
    pub(super) fn counts(&self) -> CallCounts {
        CallCounts { calls: self.calls, failures: self.failures, in_flight: self.waiting() }
    }

    /// Number of calls in flight.
    pub(in crate::client) fn waiting(&self) -> usize {
        self.unary + self.opened
    }

    /// Whether the next response is that of the only call in flight.
    pub(super) fn is_only_one_answered(&self) -> bool {
        !self.abandoned && self.waiting() <= 1
    }

    /// Number of unary calls in flight.
    pub(in crate::client) fn unary(&self) -> usize {
        self.unary
    }

    /// Earliest time at which a call may expire.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// Returns a streaming call that has not ended.
    pub(in crate::client) fn stream_mut(&mut self, id: CallId) -> Option<&mut StreamState> {
        match &mut self.slot(id)?.state {
            State::Opened(opened) if opened.is_open() => Some(opened),
            _ => None,
        }
    }

    /// Sets the idle timeout of a streaming call. Returns when it may first expire.
    pub(in crate::client) fn end_if_idle(&mut self, id: CallId, idle: Duration) -> Option<Instant> {
        let opened = self.stream_mut(id)?;
        opened.idle = Some(idle);
        opened.touch();
        let deadline = opened.deadline;
        self.earliest = match (self.earliest, deadline) {
            (Some(earliest), Some(deadline)) => Some(earliest.min(deadline)),
            (earliest, deadline) => earliest.or(deadline),
        };
        deadline
    }

    /// Ends a call if its result is awaited, and returns the waker to call.
    pub(in crate::client) fn finish(
        &mut self,
        id: CallId,
        result: Result<Reply, Status>,
        wakers: &mut Vec<Waker>,
    ) {
        let Some(slot) = self.slot(id) else { return };
        let result = apply_deadline(result, slot.state.deadline());
        let failed = u64::from(is_failure(&result));
        match &mut slot.state {
            State::Waiting { .. } => {
                let bytes = unread_bytes(&result);
                if let State::Waiting { waker, .. } = std::mem::replace(&mut slot.state, State::Ended(result))
                {
                    wakers.push(waker);
                }
                self.unary -= 1;
                self.failures += failed;
                self.unread = self.unread.map(|unread| unread + bytes);
            }
            State::Opened(opened) if opened.is_open() => {
                opened.finish(result, wakers);
                self.opened -= 1;
                self.failures += failed;
            }
            State::Opened(_) | State::Ended(_) | State::Free => {}
        }
    }

    /// Takes a call's result, or registers the waker.
    pub(in crate::client) fn take(&mut self, id: CallId, waker: &Waker) -> Option<Result<Reply, Status>> {
        let slot = self.slot(id)?;
        match &mut slot.state {
            State::Waiting { waker: known, .. } => {
                known.clone_from(waker);
                None
            }
            State::Ended(_) => match self.remove(id) {
                State::Ended(result) => Some(result),
                _ => None,
            },
            State::Opened(_) | State::Free => None,
        }
    }

    /// Appends the messages that a streaming call has received to `into`, or registers the waker. A call whose end was
    /// taken is forgotten, unless its messages count until they are consumed.
    pub(in crate::client) fn receive(
        &mut self,
        id: CallId,
        into: &mut ReceivedMessages,
        waker: &Waker,
    ) -> Poll<()> {
        let Some(Slot { state: State::Opened(opened), .. }) = self.slot(id) else { return Poll::Ready(()) };
        if opened.is_over {
            return Poll::Ready(());
        }
        if opened.arrived.is_empty() {
            register_waker(&mut opened.taker, waker);
            return Poll::Pending;
        }
        into.extend(&mut opened.arrived);
        opened.is_over = into.end.is_some();
        if opened.is_over && opened.unread == 0 {
            self.remove(id);
        }
        Poll::Ready(())
    }

    /// Forgets a call. Returns whether it was still in flight.
    pub(in crate::client) fn forget(&mut self, id: CallId) -> bool {
        match self.remove(id) {
            State::Waiting { .. } => {
                self.unary -= 1;
                self.abandoned = true;
                true
            }
            State::Opened(opened) if opened.is_open() => {
                self.opened -= 1;
                self.abandoned = true;
                true
            }
            State::Opened(_) | State::Ended(_) | State::Free => false,
        }
    }

    /// Ends every call whose deadline is not after `now`. An idle stream ends a little later, unless a message is read
    /// until then.
    pub(super) fn expire(&mut self, now: Instant, wakers: &mut Vec<Waker>) -> Vec<CallId> {
        let mut expired = Vec::new();
        self.earliest = None;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(deadline) = slot.state.deadline_after(now) else { continue };
            if deadline > now {
                self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
            } else {
                expired.push(CallId(slot.generation << INDEX_BITS | index as u64));
            }
        }
        self.abandoned |= !expired.is_empty();
        for &id in &expired {
            let status = match self.stream_mut(id) {
                Some(StreamState { idle: Some(_), .. }) => idle_too_long(),
                _ => too_late(),
            };
            self.finish(id, Err(status), wakers);
        }
        expired
    }

    /// Ends every call, since the connection is gone.
    pub(super) fn end_all(&mut self, status: &Status, wakers: &mut Vec<Waker>) {
        for slot in &mut self.slots {
            match &mut slot.state {
                State::Waiting { waker, .. } => {
                    wakers.push(waker.clone());
                    slot.state = State::Ended(Err(status.clone()));
                }
                State::Opened(opened) if opened.is_open() => {
                    opened.finish(Err(status.clone()), wakers);
                }
                State::Opened(_) | State::Ended(_) | State::Free => {}
            }
        }
        if counts_against_server(status) {
            self.failures += self.waiting() as u64;
        }
        (self.unary, self.opened) = (0, 0);
    }

    fn slot(&mut self, id: CallId) -> Option<&mut Slot> {
        let index = id.0 & ((1 << INDEX_BITS) - 1);
        let slot = self.slots.get_mut(usize::try_from(index).ok()?)?;
        (slot.generation == id.0 >> INDEX_BITS).then_some(slot)
    }

    fn remove(&mut self, id: CallId) -> State {
        let Some(slot) = self.slot(id) else { return State::Free };
        let state = std::mem::replace(&mut slot.state, State::Free);
        if let State::Free = state {
            return state;
        }
        let generation = (slot.generation + 1) & (u64::MAX >> INDEX_BITS);
        slot.generation = generation;
        self.latest = self.latest.max(generation);
        self.free.push((id.0 & ((1 << INDEX_BITS) - 1)) as u32);
        if self.slots.len() > MAX_KEPT && self.free.len() == self.slots.len() {
            // After a flood. The ids of its calls are not used again.
            (self.slots, self.free, self.first) = (Vec::new(), Vec::new(), self.latest);
        }
        let bytes = match &state {
            State::Opened(opened) => opened.unread,
            State::Ended(result) => unread_bytes(result),
            State::Waiting { .. } | State::Free => 0,
        };
        self.unread = self.unread.map(|unread| unread.saturating_sub(bytes));
        state
    }
}

impl State {
    /// Deadline of the call, if it is in flight.
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Waiting { deadline, .. } => *deadline,
            Self::Opened(opened) if opened.is_open() => opened.deadline,
            Self::Opened(_) | Self::Ended(_) | Self::Free => None,
        }
    }

    /// Deadline of the call, if it is in flight; extended if the call is an idle stream whose deadline has just passed.
    fn deadline_after(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Self::Opened(opened) if opened.is_open() => opened.extend_idle(now),
            _ => self.deadline(),
        }
    }
}

/// Why a message was not delivered.
#[derive(Debug)]
pub(super) enum DeliveryError {
    /// No call waits for it.
    NoCall(Message),
    /// Too many messages are waiting already.
    TooMany,
}

impl StreamState {
    /// Whether it has not ended.
    fn is_open(&self) -> bool {
        self.arrived.end.is_none() && !self.is_over
    }

    /// Records the start of the response.
    pub(in crate::client) fn start_response(&mut self, head: Head, wakers: &mut Vec<Waker>) {
        self.arrived.head = Some(head);
        wakers.extend(self.taker.take());
    }

    /// Resets the idle timeout, since a message was sent or received.
    pub(super) fn touch(&mut self) {
        if let Some(idle) = self.idle {
            // By the timer's clock, which a test may have paused.
            self.deadline = now().checked_add(idle);
        }
    }

    /// Returns the deadline. If the idle timeout has passed, it is extended once: a message may wait in the socket.
    fn extend_idle(&mut self, now: Instant) -> Option<Instant> {
        let is_idle = self.idle.is_some() && self.deadline.is_some_and(|deadline| deadline <= now);
        // A message would have changed the deadline.
        if is_idle && self.deadline != self.extended {
            self.deadline = now.checked_add(READ_GRACE);
            self.extended = self.deadline;
        }
        self.deadline
    }

    /// Adds a received message. `false`: too many are waiting already.
    fn deliver(&mut self, message: Message, wakers: &mut Vec<Waker>) -> bool {
        self.touch();
        let taken = self.arrived.messages.len() < MAX_WAITING;
        if taken {
            self.arrived.messages.push_back(message);
            wakers.extend(self.taker.take());
        }
        taken
    }

    fn finish(&mut self, result: Result<Reply, Status>, wakers: &mut Vec<Waker>) {
        self.arrived.end = Some(result.unwrap_or_else(Reply::failure));
        wakers.extend(self.taker.take());
        wakers.extend(self.sender.take());
    }
}

impl ReceivedMessages {
    fn is_empty(&self) -> bool {
        self.head.is_none() && self.messages.is_empty() && self.end.is_none()
    }

    fn extend(&mut self, more: &mut Self) {
        if let Some(head) = more.head.take() {
            self.head = Some(head);
        }
        if self.messages.is_empty() {
            // Both queues keep their memory.
            std::mem::swap(&mut self.messages, &mut more.messages);
        } else {
            self.messages.append(&mut more.messages);
        }
        self.end = more.end.take();
    }
}

/// Bytes that the result of a unary call holds until it is taken.
fn unread_bytes(result: &Result<Reply, Status>) -> usize {
    let Ok(reply) = result else { return 0 };
    reply.attachment.len() + reply.result.as_ref().map_or(0, |message| message.len())
}

/// Registers the waker.
pub(in crate::client) fn register_waker(known: &mut Option<Waker>, waker: &Waker) {
    match known {
        Some(known) => known.clone_from(waker),
        None => *known = Some(waker.clone()),
    }
}

/// Whether a call failed through no fault of its caller.
fn is_failure(result: &Result<Reply, Status>) -> bool {
    match result {
        Ok(reply) => reply.result.as_ref().is_err_and(counts_against_server),
        Err(status) => counts_against_server(status),
    }
}

/// Maps a reset by the server to the deadline: a server that enforces the deadline may reset the stream without a
/// reason (grpc-go does).
fn apply_deadline(result: Result<Reply, Status>, deadline: Option<Instant>) -> Result<Reply, Status> {
    let was_reset = |status: &Status| status.code() == Code::Cancelled && status.fault() == Fault::Peer;
    match (&result, deadline) {
        (Ok(Reply { result: Err(status), .. }), Some(deadline))
            if was_reset(status) && deadline <= Instant::now() =>
        {
            Err(too_late())
        }
        _ => result,
    }
}

#[cold]
fn too_late() -> Status {
    Status::deadline_exceeded("no reply in time")
}

/// Status with the server's text for the idle timeout.
#[cold]
fn idle_too_long() -> Status {
    Status::deadline_exceeded("the stream was idle for too long")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use polyrpc_core::{Compression, Format};

    use super::*;

    #[test]
    fn unread_bytes_count_until_they_are_consumed_or_the_call_is_dropped() {
        let mut pending = PendingCalls::with_byte_counts();
        let message = || Message { body: Bytes::from_static(&[0; 100]), compression: Compression::None };
        let (first, second) = (pending.open(None).unwrap(), pending.open(None).unwrap());
        for id in [first, first, second] {
            pending.deliver(id, message(), &mut Vec::new()).unwrap();
        }
        let mut taken = ReceivedMessages::default();
        assert!(pending.receive(first, &mut taken, Waker::noop()).is_ready());
        assert_eq!(pending.unread(), 300, "what was taken is not consumed");
        pending.record_consumed(first, 100);
        // The end arrives, and is taken, before all is consumed.
        pending.finish(first, reply(), &mut Vec::new());
        assert_eq!(pending.waiting(), 1);
        assert!(pending.receive(first, &mut taken, Waker::noop()).is_ready() && taken.end.is_some());
        assert_eq!(pending.unread(), 200);
        assert!(pending.receive(first, &mut taken, Waker::noop()).is_ready(), "nothing more comes");
        assert!(matches!(pending.deliver(first, message(), &mut Vec::new()), Err(DeliveryError::NoCall(_))));
        pending.record_consumed(first, 100);
        assert_eq!(pending.unread(), 100);
        assert!(pending.forget(second) && !pending.forget(first));
        assert_eq!((pending.unread(), pending.waiting()), (0, 0));
    }

    #[test]
    fn reply_counts_until_it_is_taken_or_its_call_is_forgotten() {
        let long = || Ok(Reply::message(Format::Raw, Bytes::from(vec![0; 1000])));
        let mut pending = PendingCalls::with_byte_counts();
        let ids: Vec<_> = (0..3).map(|_| pending.insert(Waker::noop().clone(), None).unwrap()).collect();
        for id in &ids {
            pending.finish(*id, long(), &mut Vec::new());
        }
        assert_eq!(pending.unread(), 3000);
        assert!(pending.take(ids[0], Waker::noop()).unwrap().is_ok());
        assert_eq!(pending.unread(), 2000);
        assert!(!pending.forget(ids[1]));
        assert_eq!(pending.unread(), 1000);
        // A second reply to the same call is dropped.
        pending.finish(ids[2], long(), &mut Vec::new());
        assert_eq!(pending.unread(), 1000);
        assert!(pending.take(ids[2], Waker::noop()).unwrap().is_ok());
        assert_eq!((pending.unread(), pending.waiting()), (0, 0));
    }

    fn reply() -> Result<Reply, Status> {
        Ok(Reply::message(Format::Raw, Bytes::new()))
    }

    #[test]
    fn reset_after_the_deadline_is_deadline_exceeded() {
        let now = Instant::now();
        let reset = || Status::cancelled("the server reset the stream").with_fault(Fault::Peer);
        let handler_status = Status::cancelled("the handler's word");
        let later = now + Duration::from_secs(3600);
        for (deadline, status, code) in [
            (Some(now), reset(), Code::DeadlineExceeded),
            (Some(later), reset(), Code::Cancelled),
            (None, reset(), Code::Cancelled),
            (Some(now), handler_status, Code::Cancelled),
        ] {
            let mut pending = PendingCalls::default();
            let id = pending.insert(Waker::noop().clone(), deadline).unwrap();
            pending.finish(id, Ok(Reply::failure(status)), &mut Vec::new());
            let ended = pending.take(id, Waker::noop()).unwrap().and_then(|reply| reply.result);
            assert_eq!(ended.unwrap_err().code(), code);
        }
    }

    #[test]
    fn late_reply_never_reaches_another_call() {
        let mut pending = PendingCalls::default();
        let first = pending.insert(Waker::noop().clone(), None).unwrap();
        assert!(pending.forget(first));
        let second = pending.insert(Waker::noop().clone(), None).unwrap();
        assert_ne!(first, second);
        let mut wakers = Vec::new();
        pending.finish(first, reply(), &mut wakers);
        assert!(wakers.is_empty());
        assert!(pending.take(second, Waker::noop()).is_none());
        pending.finish(second, reply(), &mut wakers);
        assert_eq!(wakers.len(), 1);
        assert!(pending.take(second, Waker::noop()).is_some());
        assert_eq!(pending.waiting(), 0);
    }

    #[test]
    fn slots_of_a_flood_are_dropped_and_its_ids_are_not_used_again() {
        let mut pending = PendingCalls::default();
        let mut ids: Vec<_> =
            (0..=MAX_KEPT).map(|_| pending.insert(Waker::noop().clone(), None).unwrap()).collect();
        ids.iter().for_each(|id| assert!(pending.forget(*id)));
        assert_eq!((pending.slots.capacity(), pending.free.capacity(), pending.waiting()), (0, 0, 0));
        let again = pending.insert(Waker::noop().clone(), None).unwrap();
        assert!(!ids.contains(&again));
        pending.finish(ids.swap_remove(0), reply(), &mut Vec::new());
        assert!(pending.take(again, Waker::noop()).is_none(), "a late reply reaches no later call");
    }

    #[test]
    fn call_is_answered_once() {
        let mut pending = PendingCalls::default();
        let id = pending.insert(Waker::noop().clone(), None).unwrap();
        let mut wakers = Vec::new();
        pending.finish(id, reply(), &mut wakers);
        pending.finish(id, reply(), &mut wakers);
        assert_eq!((wakers.len(), pending.waiting()), (1, 0));
    }

    #[test]
    fn calls_and_failures_of_the_server_are_counted() {
        let mut pending = PendingCalls::default();
        let call = |pending: &mut PendingCalls| pending.insert(Waker::noop().clone(), None).unwrap();
        let ids: Vec<_> = (0..5).map(|_| call(&mut pending)).collect();
        let failed = |status| Ok(Reply::failure(status));
        let mut wakers = Vec::new();
        pending.finish(ids[0], reply(), &mut wakers);
        pending.finish(ids[1], failed(Status::invalid_argument("theirs")), &mut wakers);
        pending.finish(ids[2], failed(Status::internal("the server's")), &mut wakers);
        assert_eq!(pending.counts(), CallCounts { calls: 5, failures: 1, in_flight: 2 });
        pending.end_all(&Status::unavailable("gone"), &mut wakers);
        assert_eq!(pending.counts(), CallCounts { calls: 5, failures: 3, in_flight: 0 });
    }

    #[test]
    fn only_calls_past_their_deadline_expire() {
        let mut pending = PendingCalls::default();
        let now = Instant::now();
        let soon = pending.insert(Waker::noop().clone(), Some(now)).unwrap();
        let later = pending.insert(Waker::noop().clone(), Some(now + Duration::from_secs(1))).unwrap();
        let never = pending.insert(Waker::noop().clone(), None).unwrap();
        assert_eq!(pending.earliest(), Some(now));
        let mut wakers = Vec::new();
        assert_eq!(pending.expire(now, &mut wakers), [soon]);
        assert_eq!((wakers.len(), pending.waiting()), (1, 2));
        assert_eq!(pending.earliest(), Some(now + Duration::from_secs(1)));
        assert!(pending.take(soon, Waker::noop()).unwrap().is_err());
        assert!(pending.take(later, Waker::noop()).is_none());
        assert!(pending.take(never, Waker::noop()).is_none());
    }

    #[test]
    fn idle_stream_ends_only_if_no_message_is_read_after_its_timeout() {
        let (mut pending, mut wakers) = (PendingCalls::default(), Vec::new());
        let id = pending.open(None).unwrap();
        let idle_at = pending.end_if_idle(id, Duration::from_secs(60)).unwrap();
        assert!(pending.expire(idle_at, &mut wakers).is_empty());
        assert_eq!(pending.earliest(), Some(idle_at + READ_GRACE));
        pending.deliver(id, message("read now"), &mut wakers).unwrap();
        assert!(pending.expire(idle_at, &mut wakers).is_empty());
        let idle_at = pending.earliest().unwrap();
        for at in [idle_at, idle_at + READ_GRACE / 2] {
            assert!(pending.expire(at, &mut wakers).is_empty());
        }
        assert_eq!(pending.expire(idle_at + READ_GRACE, &mut wakers), [id]);
    }

    #[test]
    fn lost_connection_ends_every_pending_call() {
        let mut pending = PendingCalls::default();
        let ids: Vec<_> = (0..3).map(|_| pending.insert(Waker::noop().clone(), None).unwrap()).collect();
        let mut wakers = Vec::new();
        pending.end_all(&Status::unavailable("gone"), &mut wakers);
        assert_eq!(wakers.len(), 3);
        for id in ids {
            assert!(pending.take(id, Waker::noop()).unwrap().is_err());
        }
    }

    fn message(text: &'static str) -> Message {
        Message { body: Bytes::from_static(text.as_bytes()), compression: Default::default() }
    }

    #[test]
    fn end_of_a_stream_follows_its_messages_and_frees_its_slot() {
        let (mut pending, mut wakers, mut arrived) =
            (PendingCalls::default(), Vec::new(), ReceivedMessages::default());
        let id = pending.open(None).unwrap();
        assert!(pending.receive(id, &mut arrived, Waker::noop()).is_pending());
        pending.stream_mut(id).unwrap().deliver(message("one"), &mut wakers);
        assert_eq!(wakers.len(), 1);
        pending.finish(id, reply(), &mut wakers);
        assert!(pending.stream_mut(id).is_none());
        assert_eq!(pending.waiting(), 0);
        assert!(pending.receive(id, &mut arrived, Waker::noop()).is_ready());
        assert_eq!(arrived.messages, [message("one")]);
        assert!(arrived.end.is_some());
        assert_ne!(pending.open(None).unwrap(), id);
    }

    #[test]
    fn stream_expires_like_a_unary_call() {
        let (mut pending, mut wakers, mut arrived) =
            (PendingCalls::default(), Vec::new(), ReceivedMessages::default());
        let now = Instant::now();
        let id = pending.open(Some(now)).unwrap();
        assert_eq!(pending.expire(now, &mut wakers), [id]);
        assert!(pending.receive(id, &mut arrived, Waker::noop()).is_ready());
        assert!(arrived.end.unwrap().result.is_err());
    }

    #[test]
    fn stream_state_does_not_enlarge_a_slot() {
        assert!(size_of::<State>() <= size_of::<Result<Reply, Status>>() + size_of::<usize>());
    }
}

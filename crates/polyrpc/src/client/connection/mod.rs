//! Connections: [`connector`] connects as often as [`connect_gate`] permits, [`any_connection`] is a connection with
//! its protocol type-erased, [`call_slot`] makes a call on one, and [`pending`] holds the calls in flight.

pub(super) mod connect_gate;
mod keepalive;

pub(super) mod any_connection;
pub(super) mod backoff;
pub(super) mod blocking;
pub(super) mod built_in;
pub(super) mod call_counts;
pub(super) mod call_slot;
pub(super) mod connect_backoff;
pub(super) mod connector;
pub(super) mod pending;
pub(super) mod server_calls;
pub(super) mod sessions;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use polyrpc_core::session::{Client as Session, ClientEvent, ViolationKind};
use polyrpc_core::{
    Call, CallId, Code, Fault, Message, Outbox, Push, Reply, Retry, Scope, Status, Violation,
};
use polyrpc_wire::http::TLS_EXPECTED;
use tokio::time::{Sleep, sleep_until};

pub use self::backoff::Backoff;
pub(super) use self::connect_gate::ConnectGate;
pub(super) use self::keepalive::Keepalive;

use self::any_connection::{AnyConnection, AttachedStreams, CallEnded, Readiness};
use self::call_counts::CallCounts;
use self::connect_gate::UnconfirmedConnection;
use self::keepalive::Heartbeat;
use self::pending::{DeliveryError, PendingCalls, ReceivedMessages, register_waker};
use self::server_calls::ServerCalls;
use super::hook::HookedConnection;
use crate::contention::{Mutex, MutexGuard};
use crate::memory_budget::Account;
use crate::runtime::now;
use crate::transport::{Inbox, ReadHalf, Stream, WriteHalf};

/// Connection that is shared by many callers.
///
/// Callers append to one outbox under one short lock. A single caller writes at once. If several are active, they only
/// append and the connection's task writes for all of them. While the task hands out a batch of replies, it delays
/// writing until every caller it woke has appended its next call ("corked"). Batches are thus sent whole, which saves
/// system calls on both sides.
pub(super) struct Connection<S> {
    shared: Mutex<Shared<S>>,
    socket: WriteHalf,
    /// Waker of the reading task.
    reader: AtomicWaker,
    listeners: ConnectionListeners,
}

/// Listeners for events of a connection other than replies, and its account.
#[derive(Default)]
pub(super) struct ConnectionListeners {
    pub(super) push: Option<PushHandler>,
    pub(super) watched: Option<HookedConnection>,
    /// Account in the shared memory budget, if there is one.
    pub(super) account: Option<Account>,
    /// Where its calls are counted once it has ended.
    calls: Option<Arc<ServerCalls>>,
    /// Set until the first reply.
    unconfirmed: Option<UnconfirmedConnection>,
}

/// Handler of messages that belong to no call.
pub(super) type PushHandler = Arc<dyn Fn(Push) + Send + Sync>;

struct Shared<S> {
    session: S,
    out: Outbox,
    pending: PendingCalls,
    /// Whether the reader will write: callers only append.
    corked: bool,
    /// Reason why no call may be sent any more.
    closed: Option<Status>,
    /// Whether the connection ends as soon as no call is in flight.
    retiring: bool,
    /// Whether the transport, if it carries datagrams, knows that replies are expected.
    expects_replies: bool,
    /// Whether a heartbeat was sent and not answered.
    listening: bool,
    /// Streaming calls whose messages wait until the outbox is emptier.
    held: Vec<CallId>,
    /// Slots that are reserved for calls which are about to be sent.
    reserved: usize,
    /// Waker of the pool whose calls wait for a free slot.
    vacancy_waker: Option<Waker>,
    /// Approximate number of bytes in the outbox that the session produced by itself, in answer to the server.
    answers: usize,
    /// Unread bytes that count in the memory budget, as the reader last reported them.
    reported: usize,
    /// Nothing is read until the memory budget has room.
    starved: bool,
}

impl<S: Session + Send + 'static> Connection<S> {
    /// Takes over a socket: spawns the task that reads from it, in the current runtime. The task ends with the
    /// connection.
    pub(super) fn start(
        stream: Stream,
        session: S,
        keepalive: Option<Keepalive>,
        mut listeners: ConnectionListeners,
    ) -> Arc<Self> {
        let (source, socket) = stream.split();
        let memory = listeners.account.take().map(MemoryShare::new);
        let shared = Shared {
            session,
            out: Outbox::new(),
            pending: match memory.is_some() {
                true => PendingCalls::with_byte_counts(),
                false => PendingCalls::default(),
            },
            corked: false,
            closed: None,
            retiring: false,
            expects_replies: false,
            listening: false,
            held: Vec::new(),
            reserved: 0,
            vacancy_waker: None,
            answers: 0,
            reported: 0,
            starved: false,
        };
        let unconfirmed = listeners.unconfirmed.take();
        let connection =
            Arc::new(Self { shared: Mutex::new(shared), socket, reader: AtomicWaker::new(), listeners });
        let reader = Reader {
            connection: connection.clone(),
            source,
            inbox: Inbox::default(),
            bytes_needed: 0,
            held_back: false,
            pauses: false,
            wakers: Vec::new(),
            unwritable: None,
            alarm: None,
            heartbeat: keepalive.map(Heartbeat::new),
            unconfirmed,
            memory,
        };
        tokio::spawn(reader.run());
        connection
    }
}

impl<S> Connection<S> {
    /// Over datagrams the connection probes its peer while it waits for replies. Under the lock: a call that is
    /// submitted meanwhile is expected afterwards. Only the first and the last call in flight change anything.
    fn update_replies_expected(&self, shared: &mut Shared<S>) {
        let are_expected = shared.pending.waiting() > 0;
        if are_expected != shared.expects_replies
            && let WriteHalf::Carried(half) = &self.socket
        {
            shared.expects_replies = are_expected;
            half.expect_replies(are_expected);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared<S>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Session + Send + 'static> AnyConnection for Connection<S> {
    fn submit(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        is_reserved: bool,
        waker: &Waker,
    ) -> Result<Option<CallId>, Status> {
        let mut shared = self.lock();
        let shared = &mut *shared;
        let call = shared.admit(call, is_reserved)?;
        let alarmed = shared.pending.earliest();
        let id = shared.pending.insert(waker.clone(), deadline).ok_or_else(too_many)?;
        let oneway = call.oneway;
        if let Err(status) = shared.session.send(id, call, &mut shared.out) {
            shared.pending.forget(id);
            return Err(status);
        }
        if oneway {
            shared.pending.forget(id);
        } else {
            shared.reserved -= usize::from(is_reserved);
        }
        let sent = self.send(shared);
        self.update_replies_expected(shared);
        if is_earlier(deadline, alarmed) || !sent {
            self.reader.wake();
        }
        Ok((!oneway).then_some(id))
    }

    fn submit_with_streams(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        attached: &AttachedStreams,
        is_reserved: bool,
        waker: &Waker,
    ) -> Result<(CallId, Vec<CallId>), Status> {
        let mut shared = self.lock();
        let shared = &mut *shared;
        let call = shared.admit(call, is_reserved)?;
        let alarmed = shared.pending.earliest();
        let id = shared.pending.insert(waker.clone(), deadline).ok_or_else(too_many)?;
        let until = deadline.filter(|_| attached.ends_with_call);
        let streams: Vec<_> = (0..attached.streams).map_while(|_| shared.pending.open(until)).collect();
        let sent = match streams.len() == attached.streams {
            true => match shared.session.streaming() {
                Some(session) => {
                    session.send_with_streams(id, call, &streams, &attached.options, &mut shared.out)
                }
                None => Err(Status::unimplemented("this protocol has no attached streams")),
            },
            false => Err(too_many()),
        };
        if let Err(status) = sent {
            for id in streams.into_iter().chain([id]) {
                shared.pending.forget(id);
            }
            return Err(status);
        }
        shared.reserved -= usize::from(is_reserved);
        let sent = self.send(shared);
        self.update_replies_expected(shared);
        if !sent || is_earlier(deadline, alarmed) {
            self.reader.wake();
        }
        Ok((id, streams))
    }

    fn poll_reply(&self, id: CallId, cx: &mut Context<'_>) -> Poll<Result<Reply, Status>> {
        let mut shared = self.lock();
        let Some(result) = shared.pending.take(id, cx.waker()) else { return Poll::Pending };
        if shared.has_released() {
            self.reader.wake();
        }
        Poll::Ready(result)
    }

    fn open(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        is_reserved: bool,
    ) -> Result<CallId, Status> {
        let mut shared = self.lock();
        let shared = &mut *shared;
        let call = shared.admit(call, is_reserved)?;
        let alarmed = shared.pending.earliest();
        let id = shared.pending.open(deadline).ok_or_else(too_many)?;
        let opened = match shared.session.streaming() {
            Some(session) => session.open(id, call, &mut shared.out),
            None => Err(Status::unimplemented("this protocol has no streams")),
        };
        if let Err(status) = opened {
            shared.pending.forget(id);
            return Err(status);
        }
        shared.reserved -= usize::from(is_reserved);
        self.update_replies_expected(shared);
        if is_earlier(deadline, alarmed) {
            self.reader.wake();
        }
        Ok(id)
    }

    fn subscribe(&self, key: &str, token: &str, is_reserved: bool) -> Result<CallId, Status> {
        let mut shared = self.lock();
        let shared = &mut *shared;
        shared.check(is_reserved)?;
        let id = shared.pending.open(None).ok_or_else(too_many)?;
        let subscribed = match shared.session.streaming() {
            Some(session) => session.subscribe(id, key, token, &mut shared.out),
            None => Err(Status::unimplemented("this protocol has no topics")),
        };
        if let Err(status) = subscribed {
            shared.pending.forget(id);
            return Err(status);
        }
        shared.reserved -= usize::from(is_reserved);
        self.flush(shared);
        Ok(id)
    }

    fn poll_send(
        &self,
        id: CallId,
        messages: &mut VecDeque<Bytes>,
        last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CallEnded>> {
        let mut shared = self.lock();
        let shared = &mut *shared;
        let is_writable = shared.session.streaming().is_some_and(|session| session.is_writable(id));
        if shared.pending.stream_mut(id).is_none() || !is_writable {
            return Poll::Ready(Err(CallEnded));
        }
        let mut sent = false;
        while shared.can_send(id)
            && let Some(session) = shared.session.streaming()
            && let Some(message) = messages.pop_front()
        {
            session.send_message(id, message, &mut shared.out);
            sent = true;
        }
        if sent && let Some(opened) = shared.pending.stream_mut(id) {
            opened.touch();
        }
        let done = last && messages.is_empty();
        if done && let Some(session) = shared.session.streaming() {
            session.end(id, &mut shared.out);
        }
        self.flush(shared);
        if done || messages.is_empty() && shared.can_send(id) {
            return Poll::Ready(Ok(()));
        }
        shared.hold(id, cx.waker());
        Poll::Pending
    }

    fn poll_receive(
        &self,
        id: CallId,
        consumed: usize,
        arrived: &mut ReceivedMessages,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut shared = self.lock();
        let shared = &mut *shared;
        if consumed > 0 {
            self.take(shared, id, consumed);
        }
        shared.pending.receive(id, arrived, cx.waker())
    }

    fn half_closes(&self) -> bool {
        self.lock().session.streaming().is_some_and(|session| session.half_closes())
    }

    fn finish(&self, id: CallId) {
        let mut shared = self.lock();
        let shared = &mut *shared;
        if shared.pending.stream_mut(id).is_some()
            && let Some(session) = shared.session.streaming()
        {
            session.close(id, &mut shared.out);
            self.flush(shared);
        }
    }

    fn end_if_idle(&self, id: CallId, idle: Duration) {
        let mut shared = self.lock();
        let alarmed = shared.pending.earliest();
        if is_earlier(shared.pending.end_if_idle(id, idle), alarmed) {
            self.reader.wake();
        }
    }

    fn record_consumed(&self, id: CallId, bytes: usize) {
        let mut shared = self.lock();
        let shared = &mut *shared;
        self.take(shared, id, bytes);
    }

    fn abandon(&self, id: CallId) {
        let (sender, vacancy_waker) = {
            let mut shared = self.lock();
            let shared = &mut *shared;
            // The receiving half may end a call whose sending half waits in another task.
            let sender = shared.pending.stream_mut(id).and_then(|opened| opened.sender.take());
            if !shared.pending.forget(id) {
                // The call had ended: its unconsumed bytes are released.
                if shared.has_released() {
                    self.reader.wake();
                }
                return;
            }
            shared.session.cancel(id, &mut shared.out);
            self.update_replies_expected(shared);
            if shared.retiring || !shared.out.is_empty() || shared.has_released() {
                self.reader.wake();
            }
            (sender, shared.take_vacancy_waker())
        };
        sender.into_iter().chain(vacancy_waker).for_each(Waker::wake);
    }

    fn readiness(&self) -> Readiness {
        self.lock().readiness()
    }

    fn reserve(&self, calls: usize, waker: &Waker) -> Option<usize> {
        let mut shared = self.lock();
        if shared.is_ending() {
            return None;
        }
        let slots = shared.free_slots(shared.reserved).min(calls);
        shared.reserved += slots;
        if slots < calls {
            register_waker(&mut shared.vacancy_waker, waker);
        }
        Some(slots)
    }

    fn release_reserved(&self) {
        let vacancy_waker = {
            let mut shared = self.lock();
            shared.reserved -= 1;
            shared.take_vacancy_waker()
        };
        vacancy_waker.into_iter().for_each(Waker::wake);
    }

    fn close(&self) {
        self.lock().retiring = true;
        self.reader.wake();
    }

    fn counts(&self) -> Option<CallCounts> {
        let shared = self.lock();
        shared.closed.is_none().then(|| shared.pending.counts())
    }

    fn hooked_connection(&self) -> Option<&HookedConnection> {
        self.listeners.watched.as_ref()
    }
}

impl<S: Session> Connection<S> {
    /// Writes the outbox, or leaves it to the reader. Returns whether the reader need not be woken.
    fn send(&self, shared: &mut Shared<S>) -> bool {
        if shared.corked {
            return true;
        }
        // Streaming calls do not count: they are silent most of the time.
        if shared.pending.unary() > 1 {
            // Other calls are waiting too: their messages and ours are sent together.
            shared.corked = true;
            return false;
        }
        // The reader handles what the socket does not accept, and its failure.
        self.socket.try_flush(&mut shared.out).is_ok() && shared.out.is_empty()
    }

    /// Records that this number of bytes of a streaming call were taken.
    fn take(&self, shared: &mut Shared<S>, id: CallId, bytes: usize) {
        let held_back = shared.blocks_input();
        shared.record_consumed(id, bytes);
        self.flush(shared);
        if held_back && !shared.blocks_input() || shared.has_released() {
            self.reader.wake();
        }
    }

    /// Writes the outbox, or wakes the reader to write it.
    fn flush(&self, shared: &mut Shared<S>) {
        if !shared.out.is_empty() && !self.send(shared) {
            self.reader.wake();
        }
    }
}

impl<S: Session> Shared<S> {
    /// Takes a call, or leaves it if this connection takes no more.
    fn admit<'a>(&mut self, call: &mut Option<Call<'a>>, is_reserved: bool) -> Result<Call<'a>, Status> {
        self.check(is_reserved)?;
        let call = call.take().expect("a call is sent once");
        if self.out.len() >= MAX_UNSENT_BYTES {
            return Err(too_many_calls());
        }
        Ok(call)
    }

    /// Checks whether another call may be sent. A reserved slot may be gone too, if the server has lowered its limit.
    fn check(&self, is_reserved: bool) -> Result<(), Status> {
        let reserved = if is_reserved { 0 } else { self.reserved };
        match &self.closed {
            Some(status) => Err(status.clone()),
            None if self.is_ending() || self.free_slots(reserved) == 0 => Err(connection_closing()),
            None => Ok(()),
        }
    }

    fn readiness(&self) -> Readiness {
        if self.is_ending() {
            Readiness::Ending
        } else if self.free_slots(self.reserved) == 0 {
            Readiness::Full
        } else {
            Readiness::Free
        }
    }

    /// Whether it takes no more calls.
    fn is_ending(&self) -> bool {
        self.closed.is_some() || self.retiring || !self.session.is_reusable()
    }

    /// Number of slots for further calls, if this number is kept for others.
    fn free_slots(&self, reserved: usize) -> usize {
        self.session.concurrency().saturating_sub(self.pending.waiting() + reserved)
    }

    /// Takes the waker of the pool whose calls wait for a free slot, if there is one now or never will be.
    fn take_vacancy_waker(&mut self) -> Option<Waker> {
        if self.vacancy_waker.is_none() || self.readiness() == Readiness::Full {
            return None;
        }
        self.vacancy_waker.take()
    }

    /// Whether a message of a streaming call may be sent now.
    fn can_send(&mut self, id: CallId) -> bool {
        self.out.len() < STREAM_HIGH_WATER_MARK
            && self.session.streaming().is_some_and(|session| session.has_room(id))
    }

    /// Whether the reader must report that much less is unread than before.
    fn has_released(&self) -> bool {
        let unread = self.pending.unread();
        self.reported > 0
            && (unread < MIN_REPORTED_UNREAD || unread + MIN_REPORTED_UNREAD <= self.reported || self.starved)
    }

    /// Notifies the session that messages of a streaming call were consumed.
    fn record_consumed(&mut self, id: CallId, bytes: usize) {
        self.pending.record_consumed(id, bytes);
        if let Some(session) = self.session.streaming() {
            session.record_consumed(id, bytes, &mut self.out);
        }
    }

    /// Whether the session parses no more input until messages are taken.
    fn blocks_input(&mut self) -> bool {
        self.session.streaming().is_some_and(|session| session.blocks_input())
    }

    /// Registers the waker to call when there is capacity for a streaming call's messages.
    fn hold(&mut self, id: CallId, waker: &Waker) {
        let crowded = self.out.len() >= STREAM_HIGH_WATER_MARK;
        let Some(opened) = self.pending.stream_mut(id) else { return };
        register_waker(&mut opened.sender, waker);
        if crowded && !std::mem::replace(&mut opened.held, true) {
            self.held.push(id);
        }
    }

    /// Wakes the streaming calls that waited for the outbox, once half of it is empty.
    fn release(&mut self, wakers: &mut Vec<Waker>) {
        if self.out.len() > STREAM_HIGH_WATER_MARK / 2 {
            return;
        }
        for id in self.held.drain(..) {
            if let Some(opened) = self.pending.stream_mut(id) {
                opened.held = false;
                wakers.extend(opened.sender.take());
            }
        }
    }

    /// Drops the outbox, since nothing can be written any more.
    #[cold]
    fn discard(&mut self) {
        self.out = Outbox::new();
        self.answers = 0;
    }

    /// Delivers a message to its call. A message without a receiver counts as taken, so that flow control does not
    /// stall the server's other messages.
    fn deliver(&mut self, id: CallId, message: Message, wakers: &mut Vec<Waker>) {
        match self.pending.deliver(id, message, wakers) {
            Ok(()) => {}
            Err(DeliveryError::TooMany) => {
                let status = Status::resource_exhausted("too many unread messages");
                self.pending.finish(id, Err(status), wakers);
                self.session.cancel(id, &mut self.out);
            }
            Err(DeliveryError::NoCall(message)) if message.body.is_empty() => {}
            Err(DeliveryError::NoCall(message)) => self.record_consumed(id, message.body.len()),
        }
    }
}

fn is_earlier(deadline: Option<Instant>, alarmed: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| alarmed.is_none_or(|alarmed| deadline < alarmed))
}

/// Task that reads from a connection, and writes the output that callers left to it.
struct Reader<S> {
    connection: Arc<Connection<S>>,
    source: ReadHalf,
    inbox: Inbox,
    bytes_needed: usize,
    /// Whether the inbox is processed only after messages were taken; nothing is read until then.
    held_back: bool,
    /// Whether reading is paused until the server has read the answers to it.
    pauses: bool,
    wakers: Vec<Waker>,
    /// Reason why nothing can be written any more. Data that the server sent before it closed is still read: replies,
    /// and the reason for the close.
    unwritable: Option<io::Error>,
    /// Timer of the earliest deadline of a call.
    alarm: Option<Pin<Box<Sleep>>>,
    heartbeat: Option<Heartbeat>,
    /// Set until the first reply.
    unconfirmed: Option<UnconfirmedConnection>,
    /// Set if the connection shares a memory budget.
    memory: Option<MemoryShare>,
}

/// The bytes of a memory budget that a connection holds.
struct MemoryShare {
    account: Account,
    /// When to check again whether the budget has room.
    retry: Option<Pin<Box<Sleep>>>,
}

impl MemoryShare {
    fn new(account: Account) -> Self {
        Self { account, retry: None }
    }

    /// Waits a while; the task is woken afterwards.
    fn wait(&mut self, cx: &mut Context<'_>) {
        let later = || tokio::time::Instant::now() + MEMORY_RETRY_INTERVAL;
        let retry = self.retry.get_or_insert_with(|| Box::pin(sleep_until(later())));
        while retry.as_mut().poll(cx).is_ready() {
            retry.as_mut().reset(later());
        }
    }
}

impl<S: Session + Send + 'static> Reader<S> {
    async fn run(mut self) {
        let ended = poll_fn(|cx| self.poll_read(cx)).await;
        self.record_unconfirmed_end(ended.as_ref().err().cloned());
        self.fail_pending(ended.err().unwrap_or_else(|| Status::unavailable("the connection was closed")));
    }

    /// Records the end of the connection if no reply was ever received.
    fn record_unconfirmed_end(&mut self, failure: Option<Status>) {
        let Some(unconfirmed) = self.unconfirmed.take() else { return };
        let shared = self.connection.lock();
        let left = shared.pending.waiting() > 0;
        let by_us = shared.retiring && !left;
        drop(shared);
        unconfirmed.on_close(left, by_us, &failure.unwrap_or_else(connection_closing));
    }

    /// Records that the connection ends within a reply, if so: the server is reachable, unless it reports that it expects
    /// TLS.
    fn record_incomplete_reply(&mut self) {
        let Some(unconfirmed) = &mut self.unconfirmed else { return };
        let bytes = &self.inbox.bytes;
        let is_incomplete =
            self.bytes_needed > 0 || !bytes.is_empty() || self.connection.lock().session.buffered() > 0;
        if is_incomplete && !expects_tls(bytes) {
            unconfirmed.on_incomplete_reply();
        }
    }

    /// Runs until the connection ends.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.connection.reader.register(cx.waker());
        let mut read = 0;
        loop {
            self.poll_alarm(cx);
            let is_starved = self.report_held();
            if !is_starved {
                // Its answer would be read too.
                self.poll_heartbeat(cx)?;
            }
            if self.unwritable.is_none() {
                match self.poll_write(cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(error)) => {
                        self.unwritable = Some(error);
                        self.pauses = false;
                    }
                }
            }
            if is_starved {
                // The consumer of messages wakes this task, and so does the timer.
                self.inbox.release_spare();
                self.memory.iter_mut().for_each(|memory| memory.wait(cx));
                return Poll::Pending;
            }
            if self.pauses {
                // The socket wakes this task when it accepts more.
                self.inbox.release_spare();
                return Poll::Pending;
            }
            let filled = match self.held_back {
                false => self.inbox.poll_fill(&mut self.source, cx, self.bytes_needed),
                true => Poll::Ready(Ok(usize::MAX)),
            };
            match filled {
                Poll::Pending => {
                    if matches!(self.connection.socket, WriteHalf::Carried(_)) {
                        self.connection.update_replies_expected(&mut self.connection.lock());
                    }
                    self.inbox.release_spare();
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => {
                    self.record_incomplete_reply();
                    return Poll::Ready(Err(self.process_final_bytes()));
                }
                Poll::Ready(Ok(bytes)) if !self.held_back => read += bytes,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    self.record_incomplete_reply();
                    return Poll::Ready(Err(broken(error)));
                }
            }
            let corked = match self.process_inbox() {
                Ok(corked) => corked,
                Err(violation) => {
                    self.flush_error();
                    return Poll::Ready(Err(violation));
                }
            };
            self.wake();
            if self.held_back && !corked {
                self.report_held();
                return Poll::Pending;
            }
            if corked {
                // Runs after every caller that was just woken; then one write sends all they appended.
                cx.waker().wake_by_ref();
                self.inbox.release_spare();
                return Poll::Pending;
            }
            if read >= READ_BUDGET {
                // After the runtime has polled the system, as a server's connections wait for their turns: woken at once,
                // it would read dozens of times before one of them. Its buffer is needed again.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                return Poll::Pending;
            }
        }
    }

    /// Reports the bytes that the connection holds to the memory budget. Returns whether reading must pause: unread
    /// messages beyond its share wait for their calls, and an incomplete message waits for bytes that others release.
    /// If the connection mostly holds data that its server has not read, it must read window updates.
    fn report_held(&mut self) -> bool {
        let Some(memory) = &mut self.memory else { return false };
        let mut shared = self.connection.lock();
        let unread = shared.pending.unread();
        let unsent = shared.out.len() + shared.session.unsent();
        // Unread replies are mostly slices of the buffer. Each byte counts once.
        let consumed = self.inbox.consumed_bytes().saturating_sub(unread);
        let held = self.inbox.buffered_bytes() + consumed + shared.session.buffered() + unread + unsent;
        memory.account.report_held(held);
        shared.reported = if unread >= MIN_REPORTED_UNREAD { unread } else { 0 };
        shared.starved = match () {
            () if unsent > held / 2 => false,
            () if unread > held / 2 => memory.account.exceeds_free(),
            () => memory.account.is_over_share(),
        };
        match shared.starved {
            // The answer to a heartbeat is not read either, so a missing answer is not the server's fault. The next
            // heartbeat is sent later.
            true => shared.listening = false,
            false => memory.retry = None,
        }
        shared.starved
    }

    /// Writes the output that callers appended. Ready when the connection must end.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = &*self.connection;
        let mut shared = connection.lock();
        shared.corked = false;
        loop {
            connection.socket.try_flush(&mut shared.out)?;
            if shared.out.is_empty() {
                break;
            }
            match connection.socket.poll_writable(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => break,
            }
        }
        shared.answers = shared.answers.min(shared.out.len());
        self.pauses = shared.answers >= MAX_UNSENT_ANSWER_BYTES;
        if !shared.held.is_empty() {
            shared.release(&mut self.wakers);
        }
        let settled =
            shared.out.is_empty() && shared.pending.waiting() == 0 && !shared.session.has_pending_output();
        if shared.retiring && settled {
            return Poll::Ready(Ok(()));
        }
        drop(shared);
        self.wake();
        Poll::Pending
    }

    /// After a protocol violation by the server: sends the session's error if the socket accepts it at once.
    fn flush_error(&mut self) {
        let mut shared = self.connection.lock();
        // The connection ends whether the server receives it or not.
        let _ = self.connection.socket.try_flush(&mut shared.out);
    }

    /// Processes all replies in the inbox. Returns whether callers must only append for now.
    fn process_inbox(&mut self) -> Result<bool, Status> {
        let mut pushes = Vec::new();
        let taken = self.process_events(&mut pushes);
        if let Some(unconfirmed) = self.unconfirmed.take_if(|unconfirmed| unconfirmed.is_confirmed()) {
            unconfirmed.confirm();
        }
        // Outside of the lock: the handler may make calls on this connection.
        if let Some(on_push) = &self.connection.listeners.push {
            // A handler's panic must not fail the calls of others.
            pushes.into_iter().for_each(|push| drop(catch_unwind(AssertUnwindSafe(|| on_push(push)))));
        }
        taken
    }

    fn process_events(&mut self, pushes: &mut Vec<Push>) -> Result<bool, Status> {
        let mut shared = self.connection.lock();
        let shared = &mut *shared;
        shared.listening = false;
        let (before, mut replied) = (shared.out.len(), false);
        let taken = loop {
            match shared.session.next_event(&mut self.inbox.bytes, &mut shared.out) {
                Ok(Some(ClientEvent::Reply(id, reply))) => {
                    if let Some(unconfirmed) = &mut self.unconfirmed {
                        unconfirmed.on_reply(Some(&reply));
                    }
                    shared.pending.finish(id, Ok(reply), &mut self.wakers);
                    replied = true;
                }
                Ok(Some(ClientEvent::Message(id, message))) => {
                    if let Some(unconfirmed) = &mut self.unconfirmed {
                        unconfirmed.on_reply(None);
                    }
                    shared.deliver(id, message, &mut self.wakers);
                }
                Ok(Some(ClientEvent::Head(id, head))) => {
                    if let Some(unconfirmed) = &mut self.unconfirmed {
                        unconfirmed.on_reply(None);
                    }
                    if let Some(opened) = shared.pending.stream_mut(id) {
                        opened.start_response(head, &mut self.wakers);
                    }
                }
                Ok(Some(ClientEvent::Room(id))) => {
                    self.wakers.extend(shared.pending.stream_mut(id).and_then(|opened| opened.sender.take()));
                }
                Ok(Some(ClientEvent::Push(push))) => pushes.push(push),
                Ok(Some(ClientEvent::Alive)) => {}
                Ok(Some(ClientEvent::TooManyHeartbeats)) => {
                    if let Some(heartbeat) = &self.heartbeat {
                        heartbeat.keepalive.double_interval();
                    }
                }
                Ok(Some(ClientEvent::GoAway)) => {
                    shared.retiring = true;
                    if let Some(unconfirmed) = &mut self.unconfirmed {
                        unconfirmed.on_go_away();
                    }
                }
                Ok(None) => break Ok(()),
                Err(violation) => {
                    if let Some(unconfirmed) = &mut self.unconfirmed
                        && !expects_tls(&self.inbox.bytes)
                    {
                        unconfirmed.on_incomplete_reply();
                    }
                    // After another reply, or with others to come, the violation may not be that of the call that waits.
                    let alone = !replied && shared.pending.is_only_one_answered();
                    // No call may join those that the violation fails.
                    shared.retiring |= violation.kind() == ViolationKind::TooLarge;
                    break Err(broken_protocol(&violation, &shared.session, &self.inbox.bytes, alone));
                }
            }
        };
        shared.answers += shared.out.len().saturating_sub(before);
        if self.unwritable.is_some() {
            shared.discard();
        }
        self.bytes_needed = shared.session.bytes_needed();
        self.held_back = shared.blocks_input();
        self.wakers.extend(shared.take_vacancy_waker());
        shared.corked = self.wakers.len() > 1;
        taken.map(|()| shared.corked)
    }

    /// Handles the server's close: a reply that is delimited by the end of the connection is complete now. Returns
    /// why the connection has ended.
    fn process_final_bytes(&mut self) -> Status {
        let mut shared = self.connection.lock();
        if let Some(ClientEvent::Reply(id, reply)) = shared.session.end_of_stream(&mut self.inbox.bytes) {
            if let Some(unconfirmed) = &mut self.unconfirmed {
                unconfirmed.on_reply(Some(&reply));
            }
            shared.pending.finish(id, Ok(reply), &mut self.wakers);
        }
        match self.unwritable.take() {
            Some(error) if !explains_close(&shared.session, &self.inbox.bytes) => broken(error),
            _ => closed(&shared.session, &self.inbox.bytes),
        }
    }

    /// Ends the calls whose deadline has passed.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) {
        let mut shared = self.connection.lock();
        while let Some(earliest) = shared.pending.earliest() {
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(earliest.into())));
            if alarm.deadline() != earliest.into() {
                alarm.as_mut().reset(earliest.into());
            }
            if alarm.as_mut().poll(cx).is_pending() {
                break;
            }
            let expired = shared.pending.expire(now(), &mut self.wakers);
            let shared = &mut *shared;
            for id in expired {
                shared.session.cancel(id, &mut shared.out);
            }
            self.wakers.extend(shared.take_vacancy_waker());
        }
        drop(shared);
        self.wake();
    }

    /// Sends a heartbeat to a silent server. The wait for its answer is extended once, so that the socket is read before
    /// the server is given up.
    fn poll_heartbeat(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        let Some(heartbeat) = &mut self.heartbeat else { return Ok(()) };
        while heartbeat.poll_due(cx) {
            let mut shared = self.connection.lock();
            let shared = &mut *shared;
            if !shared.listening {
                heartbeat.end_wait();
                // No answer is awaited if the protocol has no heartbeat, or none may be sent now.
                shared.listening = shared.session.heartbeat(&mut shared.out);
            } else if !heartbeat.extend_wait() {
                return Err(connection_lost("the server does not answer heartbeats"));
            }
        }
        Ok(())
    }
}

impl<S> Reader<S> {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// Fails every call in flight.
    fn fail_pending(&mut self, status: Status) {
        let mut shared = self.connection.lock();
        if shared.closed.is_some() {
            return;
        }
        tracing::debug!(target: "polyrpc::client", reason = status.message(), "a connection ended");
        shared.pending.end_all(&status, &mut self.wakers);
        if let Some(calls) = &self.connection.listeners.calls {
            calls.add_ended(shared.pending.counts());
        }
        shared.closed = Some(match status.code() {
            // The failure of the call that waited, not of those that come later.
            Code::ResourceExhausted => connection_closing(),
            _ => status.clone().with_retry(Retry::Elsewhere),
        });
        // A pool may hold the connection for long; the socket is closed now.
        self.connection.socket.close();
        self.wakers.extend(shared.vacancy_waker.take());
        drop(shared);
        self.wake();
        if let Some(watched) = &self.connection.listeners.watched {
            watched.on_close(&status);
        }
    }
}

impl<S> Drop for Reader<S> {
    /// The runtime may end before the connection does: without its task no call would ever end.
    fn drop(&mut self) {
        self.fail_pending(connection_lost("the runtime of the connection has ended"));
    }
}

/// Maximum number of unsent bytes for a server that does not read. brpc's `socket_max_unwritten_bytes`.
const MAX_UNSENT_BYTES: usize = 64 << 20;

/// Maximum number of unsent bytes that the session produced by itself, before reading from a server that does not read
/// is paused. Well-behaved servers stay far below it: acknowledgements and window updates for more than a gibibyte of
/// messages.
const MAX_UNSENT_ANSWER_BYTES: usize = 1 << 20;

/// Minimum number of unread bytes that are reported to the memory budget; fewer are mostly consumed at once.
const MIN_REPORTED_UNREAD: usize = 16 << 10;

/// Number of bytes that are read before the task yields to other tasks of its thread. The runtime's own budget is 128
/// reads, which may be 32 MiB: replies would arrive faster than callers take them, and callers of other connections
/// would wait.
const READ_BUDGET: usize = 512 << 10;

/// Interval at which a connection checks whether the memory budget has room.
const MEMORY_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Number of unsent bytes from which messages of streaming calls wait. It is a few writes' worth, so that the socket
/// never runs dry.
const STREAM_HIGH_WATER_MARK: usize = 256 << 10;

#[cold]
fn too_many() -> Status {
    Status::resource_exhausted("too many calls wait on this connection")
}

#[cold]
fn connection_closing() -> Status {
    Status::unavailable("the connection takes no more calls")
        .with_scope(Scope::Connection)
        .with_retry(Retry::Elsewhere)
}

#[cold]
fn too_many_calls() -> Status {
    Status::resource_exhausted("the server does not read from the connection")
}

/// Status of a protocol violation by the server; `inbox` holds the last bytes, which were not understood. `alone`: not
/// more than one call waits.
#[cold]
pub(super) fn broken_protocol(
    violation: &Violation,
    session: &(impl Session + ?Sized),
    inbox: &[u8],
    alone: bool,
) -> Status {
    if expects_tls(inbox) {
        return tls_is_expected();
    }
    match (violation.kind(), alone) {
        (ViolationKind::TooLarge, true) => return response_too_long(violation),
        (ViolationKind::TooLarge, false) => return other_response_too_long(violation),
        (ViolationKind::Malformed | ViolationKind::Flood, _) => {}
    }
    Status::internal(with_hint(
        format!("the server violated the protocol: {violation}"),
        session.failure_hint(),
    ))
    .with_scope(Scope::Connection)
    .with_retry(Retry::IfIdempotent)
}

/// Status of the only call on a connection whose server sent more than this side accepts.
#[cold]
fn response_too_long(violation: &Violation) -> Status {
    Status::resource_exhausted(format!("the response exceeds a limit of this side: {violation}"))
        .with_scope(Scope::Connection)
        .with_fault(Fault::Us)
        .with_retry(Retry::Never)
}

/// Status of the calls on such a connection if they are several: which one caused it is unknown, and most did not.
#[cold]
fn other_response_too_long(violation: &Violation) -> Status {
    connection_lost(format!(
        "the connection ended because a response on it, possibly another call's, exceeds a limit of this side: \
         {violation}"
    ))
}

/// Status of a close by the server; `inbox` holds the last bytes, which were not understood.
#[cold]
pub(super) fn closed(session: &(impl Session + ?Sized), inbox: &[u8]) -> Status {
    if expects_tls(inbox) {
        return tls_is_expected();
    }
    connection_lost(with_hint("the server closed the connection".to_owned(), session.failure_hint()))
}

/// Whether what the server sent before it closed the connection may say why.
pub(super) fn explains_close(session: &(impl Session + ?Sized), inbox: &[u8]) -> bool {
    expects_tls(inbox) || session.failure_hint().is_some()
}

fn with_hint(text: String, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{text}; {hint}"),
        None => text,
    }
}

/// Whether a server that received plaintext reports that it expects TLS: by an alert (RFC 8446, 5.1), or by HTTP/1
/// (nginx: "The plain HTTP request was sent to HTTPS port"; Go: "Client sent an HTTP request to an HTTPS server.").
fn expects_tls(inbox: &[u8]) -> bool {
    let says = |words: &[u8]| inbox.windows(words.len()).any(|part| part == words);
    inbox.starts_with(&[21, 3]) || inbox.starts_with(b"HTTP/1.") && (says(b"HTTPS") || says(b"expects TLS"))
}

#[cold]
fn tls_is_expected() -> Status {
    connection_lost(TLS_EXPECTED)
}

#[cold]
fn broken(error: io::Error) -> Status {
    connection_lost(format!("the connection broke: {error}")).with_source(error)
}

/// Status of a lost connection: it is unknown whether its calls were processed.
#[cold]
fn connection_lost(why: impl Into<Cow<'static, str>>) -> Status {
    Status::unavailable(why).with_scope(Scope::Connection).with_retry(Retry::IfIdempotent)
}

#[cfg(test)]
mod tests;

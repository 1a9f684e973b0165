use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polyrpc_core::session::{Handover, Server as Session, ServerEvent, Verdict, ViolationKind};
use polyrpc_core::{Code, Credential, Outbox, Reply, Retry, Status, StreamId, Topic, Violation};

use super::arrival_time::ArrivalTime;
use super::authentication::AuthenticationResult;
use super::call_record::CallRecord;
use super::clocks::{Activity, ClockAction, Clocks, IncompletePart};
use super::connections::{ConnectionCommand, ConnectionGuard, ConnectionPhase, ServerPush};
use super::dispatch::{CallEnvironment, Dispatched, Dispatcher, HeadDecision, Rejection};

use super::fairness::FairnessBudget;
use super::hook_chain::RedirectedNames;
use super::in_flight::{Delivery, FinishedCall, InFlight, RunningCall};
use super::incidents::{Closing, Refusal};
use super::listener_context::ListenerContext;
use super::streams::Streams;
use super::subscription::{self, SubscriptionAdmission};
use super::tick::{TICK, ticks};
use super::topics::Subscriptions;
use super::unsendable;
use crate::call::{AcceptedStreams, CallSite, Calls, ConnectionFacts, Outcome};
use crate::memory_budget::{self, Account};
use crate::propagation::CallScope;
use crate::transport::{Inbox, Transport, scratch};

/// What one session after the other has of a connection.
pub(super) struct ConnectionParts<'a> {
    pub(super) stream: &'a mut Transport,
    pub(super) inbox: &'a mut Inbox,
    pub(super) registration: &'a ConnectionGuard,
    pub(super) listener: &'a ListenerContext,
    pub(super) facts: Arc<ConnectionFacts>,
}

/// A connection with its protocol type-erased.
pub(super) trait Driver: Send {
    /// Serves until the connection ends or changes its protocol. Dropping the driver drops the handlers that wait.
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd>;
}

/// Drives one session over one socket.
///
/// One task does everything for a connection: it takes every message out of what one read brought, polls
/// each handler once in place, and writes all answers of the round at once. Only a handler that waits is kept
/// aside.
pub(super) struct Connection<'a, S: Session> {
    stream: &'a mut Transport,
    inbox: &'a mut Inbox,
    registration: &'a ConnectionGuard,
    listener: &'a ListenerContext,
    dispatch: Dispatcher<'a>,
    session: S,
    out: Outbox,
    in_flight: InFlight<PendingReply<S::Ticket>>,
    streams: Streams,
    subscriptions: Subscriptions,
    state: State,
    /// How it ends, once it does.
    end: SessionEnd,
    /// How many bytes of a peer that was told goodbye are still read.
    linger_budget: usize,
    calls: Calls,
    /// The peer has closed its half.
    half_closed: bool,
    /// It was told to take on nothing new.
    draining: bool,
    /// The session has taken all it can from the inbox.
    inbox_drained: bool,
    write_batch: WriteBatch,
    fairness: FairnessBudget,
    /// What the connection holds of the server.
    account: Arc<Account>,
    clocks: Clocks,
    transferred: TransferredBytes,
    /// Bytes of the sessions before, in and out.
    bytes_before: (u64, u64),
    /// Credentials that are being judged for something else than a call.
    authenticating: Option<Box<FuturesUnordered<AuthenticationFuture>>>,
    /// One was judged since the end of the input was last looked at.
    has_authenticated: bool,
    /// When streams are next looked at that do nothing, in ticks.
    look_at_streams: u32,
    /// Since when it takes on nothing new, in ticks.
    draining_since: u32,
    arrival: ArrivalTime,
    /// How many heartbeats the hooks were told of.
    heartbeats: u64,
    /// When the session was last told the time, in ticks.
    ticked: u32,
    /// More was due then than the session has done.
    is_ticking: bool,
    /// The tick in which it was last seen with nothing under way and nothing held.
    rested: u32,
    /// Nothing is read now, for a reason that is not the peer's.
    pauses: bool,
    /// For how many ticks nothing was read: time that the session's clocks do not count.
    paused: u32,
    /// The session must be told the time though nothing arrives.
    wants_ticks: bool,
}

/// A call that was not answered yet.
struct PendingReply<T> {
    ticket: T,
    /// Tells hooks of the end.
    call_record: Option<Box<CallRecord>>,
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It takes calls.
    Serving,
    /// It takes no calls any more, and ends when all it owes is written.
    Finishing,
    /// All is written and the end was said. What the peer still sends is thrown away, since closing with
    /// unread bytes would destroy the last answer on its way.
    Lingering,
}

/// Why a session ended.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// The connection is over.
    Closed,
    /// The peer goes on in another protocol.
    Foreign,
    /// The peer goes on in what it asked for by `CONNECT`.
    Connect,
    /// The peer goes on in HTTP/2, with a request that is here already.
    Upgrade(Handover),
    /// The peer goes on within a WebSocket.
    WebSocket,
}

/// After how many calls their answers are written while more calls are at hand.
///
/// To write once for all would be fewer system calls, but server and client would then work in turns and sleep
/// in between: with 64 callers on a connection that was less than half the rate, at more CPU time a call, since
/// waking a core is dearer than a write. A part of what is at hand keeps both at work.
#[derive(Debug)]
struct WriteBatch {
    /// Calls taken since the inbox was last empty.
    calls: usize,
    /// About how many it were in the longest of the last rounds.
    usual_length: usize,
    /// How many calls a part has, as the session wishes it, and now.
    preferred_size: usize,
    size: usize,
}

/// In a longer round the peer has enough to do meanwhile.
const FEW: usize = 128;

impl WriteBatch {
    fn new(part: usize) -> Self {
        Self { calls: 0, usual_length: 0, preferred_size: part, size: part }
    }

    /// The inbox is empty.
    fn inbox_drained(&mut self) {
        self.usual_length = self.calls.max(self.usual_length - self.usual_length.div_ceil(256));
        self.size = if self.usual_length <= FEW { self.preferred_size } else { usize::MAX };
        self.calls = 0;
    }
}

/// How many bytes of a peer that broke the protocol are thrown away before its connection is closed with what is
/// unread. Enough for the reason to arrive at one that made a mistake; one that floods has megabytes on their way, and
/// to read them all would be its success.
const LINGERED: usize = 64 << 10;

/// What went over a connection.
#[derive(Debug, Default)]
struct TransferredBytes {
    received: u64,
    written: u64,
    /// A message was taken whole since the connection last went to sleep.
    took: bool,
}

/// A credential that is being judged.
struct AuthenticationFuture {
    /// The request whose head brought it.
    head: Option<StreamId>,
    judging: Pin<Box<dyn Future<Output = Authenticated> + Send>>,
}

impl Future for AuthenticationFuture {
    type Output = Authenticated;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Authenticated> {
        self.judging.as_mut().poll(cx)
    }
}

/// What became of such a credential.
enum Authenticated {
    Head(StreamId, Verdict),
    Subscription(Topic, Result<(), Status>),
    /// A subscription has passed the layers.
    Admitted(Topic),
    /// A layer has refused or ended a subscription.
    Unsubscribed,
}

/// How many bytes are read from a peer while what it has sent waits for an answer.
const AHEAD: usize = 64 << 10;

/// After how many ticks streams are looked at that may be idle: 4 s, or sooner if less is allowed.
const LOOK_AT_STREAMS: u32 = 16;

/// How long a server that goes away waits for what its peers have begun and not sent, in ticks: 2 s.
const DRAIN_PATIENCE: u32 = 8;

/// A reply of so many bytes is taken only where the memory budget has room for it.
const LARGE_REPLY: usize = 64 << 10;

impl<S: Session + Send> Driver for Connection<'_, S> {
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        let end = ready!(self.poll_drive(cx)).unwrap_or(SessionEnd::Closed);
        self.dispatch.close();
        // Whatever the peer speaks next begins with a first byte.
        let entry = &self.registration.connection;
        entry.waits(ConnectionPhase::Silent, self.registration.tick());
        entry.wake_at(u32::MAX);
        entry.wants_ticks(false);
        entry.turns().leave(entry);
        Poll::Ready(end)
    }
}

impl<'a, S: Session> Connection<'a, S> {
    /// Boxed: a connection takes the room that its own protocol needs, not that of the largest.
    pub(super) fn new(parts: ConnectionParts<'a>, session: S) -> Box<Self> {
        let ConnectionParts { stream, inbox, registration, listener, facts } = parts;
        Box::new(Self {
            stream,
            inbox,
            registration,
            listener,
            dispatch: Dispatcher::new(listener, registration, facts),
            session,
            out: Outbox::new(),
            in_flight: InFlight::new(registration.connection.account.clone()),
            streams: Streams::new(registration.connection.account.clone(), registration.tick()),
            subscriptions: Subscriptions::new(
                listener.server.publisher.topics().clone(),
                registration.connection.clone(),
            ),
            state: State::Serving,
            end: SessionEnd::Closed,
            linger_budget: usize::MAX,
            calls: registration.connection.calls(),
            half_closed: false,
            draining: false,
            inbox_drained: false,
            write_batch: WriteBatch::new(S::PART),
            fairness: FairnessBudget::default(),
            account: registration.connection.account.clone(),
            clocks: Clocks::new(
                registration.limits(),
                registration.connection.opened(),
                registration.connection.id(),
            ),
            transferred: TransferredBytes::default(),
            bytes_before: registration.connection.bytes(),
            authenticating: None,
            has_authenticated: false,
            look_at_streams: 0,
            draining_since: 0,
            arrival: ArrivalTime::new(listener.server.times_calls),
            heartbeats: 0,
            ticked: registration.tick(),
            is_ticking: false,
            rested: u32::MAX,
            pauses: false,
            paused: 0,
            wants_ticks: false,
        })
    }

    /// Goes on until everything waits: for the peer's bytes, for the peer to read, or for handlers.
    fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<SessionEnd>> {
        self.registration.connection.set_waker(cx.waker());
        self.out.lend_buffer(scratch::borrow());
        self.streams.wake();
        self.fairness.start_turn(&self.registration.connection);
        self.tick();
        let end = loop {
            if self.handle_command() == ConnectionCommand::Close {
                if self.unwritten() > 0 {
                    // Else the system would keep what the peer does not read.
                    self.stream.reset();
                }
                break Poll::Ready(Ok(SessionEnd::Closed));
            }
            self.take_calls(cx);
            self.tell_heartbeats();
            self.write_finished_replies(cx);
            let unsent = self.listener.server.limits.unsent;
            if self.streams.pump(&mut self.session, &mut self.out, unsent) && self.session.blocks_input() {
                // What was held back may go on.
                self.inbox_drained = false;
            }
            self.push();
            match self.poll_io(cx) {
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(Ok(Some(end))) => break Poll::Ready(Ok(end)),
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.fairness.end_turn(&self.registration.connection);
        self.streams.sleep(cx.waker());
        self.release_buffers();
        end
    }

    /// Tells everything the time, once a tick, and does what is due then.
    fn tick(&mut self) {
        let now = self.registration.tick();
        if now == self.ticked {
            if self.is_ticking {
                self.tick_session();
            }
            return;
        }
        if self.pauses {
            self.paused += now - self.ticked;
        }
        self.ticked = now;
        self.streams.tick(now);
        self.tick_session();
        while let Some(due) = self.clocks.due(now, self.transferred.received, self.transferred.written) {
            match due {
                ClockAction::Close(cause) => return self.time_out(cause),
                ClockAction::Drain => self.registration.connection.send_command(ConnectionCommand::Drain),
                ClockAction::Ping => {
                    let asked = self.session.ping(&mut self.out);
                    self.clocks.record_ping(now, asked);
                }
            }
        }
        if now >= self.look_at_streams && !self.streams.is_empty() {
            self.end_idle_streams(now);
        }
        if self.draining && self.is_overdue() {
            self.in_flight.fail_gathering(&Status::unavailable("the server is shutting down"));
        }
    }

    /// Tells the session the time, again in the next turn if more is due than it has done.
    fn tick_session(&mut self) {
        self.is_ticking = self.session.tick(TICK * (self.ticked - self.paused), &mut self.out);
        if self.is_ticking {
            self.fairness.exhaust();
        }
    }

    /// Ends the connection for a clock that has run out, and says so where the peer may still read it.
    #[cold]
    fn time_out(&mut self, cause: Closing) {
        let entry = &self.registration.connection;
        let text = match cause {
            Closing::Head | Closing::Message => {
                entry.closed(cause);
                "the rest of a message did not come in time"
            }
            // The peer does not read, or is not to be told; the rest of its time is not used.
            _ => return entry.close(cause),
        };
        self.session.abort(&Status::deadline_exceeded(text), &mut self.out);
        self.inbox.bytes.clear();
        // Their answers are not read.
        (0..self.in_flight.abort_all()).for_each(|_| self.calls.ended(false));
        self.give_up();
    }

    #[cold]
    fn end_idle_streams(&mut self, now: u32) {
        let allowed = self.listener.server.limits.stream_idle_timeout.map_or(u32::MAX, ticks);
        let shortest = self.streams.shortest_idle(allowed);
        if shortest == u32::MAX {
            self.look_at_streams = u32::MAX;
            return;
        }
        self.look_at_streams = now + LOOK_AT_STREAMS.min(shortest.div_ceil(4)).max(1);
        for stream in self.streams.idle(allowed) {
            self.registration.connection.refused(Refusal::StreamIdle);
            self.in_flight.fail(stream, Status::deadline_exceeded("the stream was idle for too long"));
        }
    }

    fn handle_command(&mut self) -> ConnectionCommand {
        let order = self.registration.connection.ordered();
        match order {
            ConnectionCommand::Serve | ConnectionCommand::Close => {}
            ConnectionCommand::GoAway => self.session.go_away(),
            ConnectionCommand::Drain if self.draining => {}
            ConnectionCommand::Drain => self.drain(),
        }
        order
    }

    #[cold]
    fn drain(&mut self) {
        self.draining = true;
        self.rested = u32::MAX;
        self.draining_since = self.registration.tick();
        self.session.drain(&mut self.out);
    }

    /// Takes calls out of the inbox for as long as neither the peer nor the handlers lag behind, and at most a
    /// part of a round.
    fn take_calls(&mut self, cx: &mut Context<'_>) {
        self.inbox_drained = false;
        let end = self.write_batch.calls.saturating_add(self.write_batch.size);
        let over_share = self.is_over_share();
        let mut renamed = RedirectedNames::default();
        while self.state == State::Serving
            && !self.saturated()
            && self.write_batch.calls < end
            && !self.fairness.is_exhausted()
        {
            match self.session.next_event(&mut self.inbox.bytes, &mut self.out) {
                Ok(Some(ServerEvent::Call(call, ticket))) => {
                    self.transferred.took = true;
                    self.calls.started += 1;
                    self.fairness.record_call(call.head.metadata.len());
                    self.write_batch.calls += 1;
                    let (streams, arrival) = (&mut self.streams, &mut self.arrival);
                    let found = CallEnvironment { over_share, streams, arrival };
                    let (started, call_record) =
                        self.dispatch.start::<S>(call, &ticket, &mut renamed, found, cx);
                    self.track_or_answer(started, PendingReply { ticket, call_record });
                }
                Ok(Some(ServerEvent::Open(call, ticket, stream))) => {
                    self.transferred.took = true;
                    self.calls.started += 1;
                    self.fairness.record_stream_open(call.head.metadata.len());
                    self.write_batch.calls += 1;
                    let (streams, arrival) = (&mut self.streams, &mut self.arrival);
                    let found = CallEnvironment { over_share, streams, arrival };
                    let (started, call_record) =
                        self.dispatch.open::<S>(call, &ticket, &mut renamed, stream, found);
                    self.track_or_answer(started, PendingReply { ticket, call_record });
                }
                Ok(Some(ServerEvent::Message(stream, message))) => {
                    self.transferred.took = true;
                    if !self.streams.give(stream, message, &mut self.session, &mut self.out) {
                        self.in_flight.cancel(stream);
                    }
                }
                Ok(Some(ServerEvent::End(stream))) => self.streams.end_of_stream(stream),
                Ok(Some(ServerEvent::Room(stream))) => self.streams.resume_sending(stream),
                Ok(Some(ServerEvent::Cancelled(stream))) => {
                    self.forget_judging(stream);
                    self.streams.cancel(stream);
                    self.in_flight.cancel(stream);
                }
                Ok(Some(ServerEvent::Head(head, stream))) => {
                    let judged = self.dispatch.check_head(&head, over_share);
                    self.apply_head_decision(stream, judged);
                }
                Ok(Some(ServerEvent::Alive)) => {}
                Ok(Some(ServerEvent::Pause)) => self.fairness.exhaust(),
                Ok(Some(ServerEvent::Subscribe(topic))) => {
                    // It takes a lock that all connections share.
                    self.fairness.record_stream_open(0);
                    self.subscribe(topic);
                }
                Ok(Some(ServerEvent::Foreign)) => self.hand_over(SessionEnd::Foreign),
                Ok(Some(ServerEvent::Connect)) => self.hand_over(SessionEnd::Connect),
                Ok(Some(ServerEvent::Upgrade(upgrade))) => self.hand_over(SessionEnd::Upgrade(upgrade)),
                Ok(Some(ServerEvent::WebSocket)) => self.hand_over(SessionEnd::WebSocket),
                Ok(None) => {
                    self.inbox_drained = true;
                    self.write_batch.inbox_drained();
                    if let Some(refusals) = self.session.take_refusals() {
                        self.registration.connection.refused_by_session(refusals);
                    }
                    if self.session.finished() {
                        self.finish();
                    }
                    return;
                }
                // Whatever the session had to say of it is in the outbox.
                Err(violation) => self.end_with_violation(&violation),
            }
        }
    }

    #[cold]
    fn end_with_violation(&mut self, violation: &Violation) {
        self.registration.connection.closed(match violation.kind() {
            ViolationKind::Malformed => Closing::Malformed,
            ViolationKind::TooLarge => Closing::TooLarge,
            ViolationKind::Flood => Closing::Flood,
        });
        if violation.kind() == ViolationKind::TooLarge {
            self.registration.connection.incidents.count(Refusal::TooLarge);
        }
        self.give_up();
    }

    /// Tells the session what becomes of a request whose head it has given out.
    fn apply_head_decision(&mut self, stream: StreamId, judged: HeadDecision) {
        match judged {
            HeadDecision::Now(verdict) => {
                if self.session.apply_verdict(stream, verdict, &mut self.out) {
                    self.finish();
                }
            }
            HeadDecision::Later(judging) => {
                let judging = Box::pin(async move { Authenticated::Head(stream, judging.await) });
                self.authenticate_later(AuthenticationFuture { head: Some(stream), judging });
            }
            HeadDecision::TooMany => self.end_guesses(),
        }
    }

    fn authenticate_later(&mut self, judging: AuthenticationFuture) {
        self.authenticating.get_or_insert_default().push(judging);
    }

    /// The judgement of this head is no longer awaited.
    fn forget_judging(&mut self, stream: StreamId) {
        if let Some(judging) = self.authenticating.as_mut().filter(|judging| !judging.is_empty()) {
            let all = std::mem::take(&mut **judging);
            judging.extend(all.into_iter().filter(|waiting| waiting.head != Some(stream)));
        }
    }

    fn is_judging(&self) -> bool {
        self.authenticating.as_ref().is_some_and(|judging| !judging.is_empty())
    }

    /// Takes up what was judged meanwhile.
    fn apply_authenticated(&mut self, cx: &mut Context<'_>) {
        while let Some(judging) = self.authenticating.as_mut().filter(|judging| !judging.is_empty())
            && let Poll::Ready(Some(judged)) = judging.poll_next_unpin(cx)
        {
            self.inbox_drained = false;
            self.has_authenticated = true;
            match judged {
                Authenticated::Head(stream, verdict) => {
                    self.apply_head_decision(stream, HeadDecision::Now(verdict))
                }
                Authenticated::Subscription(topic, Ok(())) => self.pass_subscription(topic),
                Authenticated::Admitted(topic) => self.add_subscription(topic),
                Authenticated::Subscription(_, Err(_)) | Authenticated::Unsubscribed => self.finish(),
            }
        }
    }

    /// The peer has brought too many wrong credentials.
    #[cold]
    fn end_guesses(&mut self) {
        self.registration.connection.closed(Closing::Credentials);
        self.give_up();
    }

    /// Whether the connection holds more than its share of the memory budget.
    fn is_over_share(&self) -> bool {
        self.account.bytes() > memory_budget::FLOOR && self.account.exceeded_share().is_some()
    }

    /// Tells hooks of what the session has answered by itself.
    fn tell_heartbeats(&mut self) {
        let hooks = &self.listener.server.hooks;
        if hooks.is_empty() {
            return;
        }
        let caller = self.dispatch.caller();
        while self.heartbeats < self.session.heartbeats() {
            self.heartbeats += 1;
            hooks.heartbeat(&caller.peer, caller.protocol);
        }
    }

    /// It is not acknowledged; who may not, or has too many, is not served any more.
    fn subscribe(&mut self, topic: Topic) {
        self.transferred.took = true;
        match self.dispatch.authenticate(&Credential::Connection(None)) {
            AuthenticationResult::Accepted => self.pass_subscription(topic),
            AuthenticationResult::Refused(_) => self.finish(),
            AuthenticationResult::Later(judging) => {
                let judging = Box::pin(async { Authenticated::Subscription(topic, judging.await) });
                self.authenticate_later(AuthenticationFuture { head: None, judging });
            }
            AuthenticationResult::TooMany => self.end_guesses(),
        }
    }

    /// Takes a subscription through the layers, if there are any.
    fn pass_subscription(&mut self, topic: Topic) {
        let layers = &self.listener.server.subscription_layers;
        if layers.is_empty() {
            return self.add_subscription(topic);
        }
        let SubscriptionAdmission { handling, admitted } =
            subscription::pass_layers(&topic, layers, self.dispatch.connection());
        let judging = Box::pin(async move {
            match admitted.await {
                Ok(()) => Authenticated::Admitted(topic),
                Err(_) => Authenticated::Unsubscribed,
            }
        });
        self.authenticate_later(AuthenticationFuture { head: None, judging });
        let judging = Box::pin(async move {
            handling.await;
            Authenticated::Unsubscribed
        });
        self.authenticate_later(AuthenticationFuture { head: None, judging });
    }

    fn add_subscription(&mut self, topic: Topic) {
        if self.subscriptions.add(topic).is_err() {
            self.finish();
        }
    }

    fn track_or_answer(&mut self, started: Dispatched, owed: PendingReply<S::Ticket>) {
        match started {
            Dispatched::Finished(ending) => self.end_call(owed, ending),
            Dispatched::Pending { handling, site, deadline, inherited, way, bytes } => {
                let stream = S::stream(&owed.ticket);
                let running = RunningCall::new(handling, site, owed, deadline, inherited, stream, way);
                self.in_flight.push(running.holding(bytes));
            }
            Dispatched::AwaitingMessage { gathering, site, deadline, inherited, bytes } => {
                let stream = S::stream(&owed.ticket);
                let running = RunningCall::gathering(gathering, site, owed, deadline, inherited, stream);
                self.in_flight.push(running.holding(bytes));
            }
            Dispatched::Rejected(Rejection::Failed(status)) => self.end_call(owed, Outcome::failed(status)),
            Dispatched::Rejected(Rejection::Expired) => {
                self.registration.expired();
                self.end_call(owed, Outcome::expired());
            }
            Dispatched::Rejected(Rejection::Unauthenticated(status)) => self.refuse(owed, status),
            Dispatched::Rejected(Rejection::TooManyFailures) => {
                self.calls.ended(false);
                self.end_guesses();
            }
        }
    }

    #[cold]
    fn refuse(&mut self, PendingReply { ticket, mut call_record }: PendingReply<S::Ticket>, status: Status) {
        self.calls.ended(false);
        if let Some(call_record) = &mut call_record {
            call_record.failed(&status);
        }
        if self.session.reject(ticket, status, &mut self.out) {
            self.finish();
        }
    }

    fn write_finished_replies(&mut self, cx: &mut Context<'_>) {
        self.apply_authenticated(cx);
        while !self.fairness.is_exhausted()
            && let Some(FinishedCall { owed, ending, streamed, .. }) = self.in_flight.poll_ended(cx)
        {
            self.fairness.record_call(0);
            match (ending, streamed) {
                (Some(ending), None) => self.end_call(owed, ending),
                (Some(ending), Some(stream)) => self.end_stream(stream, owed, ending),
                (None, None) => self.calls.ended(false),
                (None, Some(stream)) => {
                    self.calls.ended(false);
                    self.streams.forget(stream, &mut self.session, &mut self.out);
                }
            }
            // A session that keeps an order may have held calls back until this answer.
            self.inbox_drained = false;
        }
    }

    fn end_call(
        &mut self,
        PendingReply { ticket, mut call_record }: PendingReply<S::Ticket>,
        mut ending: Outcome,
    ) {
        unsendable::refuse::<S>(&ticket, &mut ending);
        self.calls.ended(ending.succeeded());
        if let Some(call_record) = &mut call_record {
            call_record.set_outcome(&ending);
        }
        // What a handler has pushed leaves before its answer, as from rpcx's servers.
        self.push();
        if let Outcome::Reply(reply) = &mut ending {
            self.bound_reply(reply);
        }
        match ending {
            Outcome::Reply(reply) => self.session.reply(ticket, reply, &mut self.out),
            Outcome::Unauthenticated(status) => self.answer_refused(ticket, status),
            Outcome::Corrupt(status) => self.answer_corrupt(ticket, status),
            Outcome::Accept(reply, accepted) => self.accept(ticket, *reply, accepted),
            Outcome::Finish { result, trailers } => {
                self.session.finish(ticket, result, trailers, &mut self.out);
            }
            Outcome::CloseConnection => self.finish(),
        }
    }

    /// Counts a large reply, or puts a failure in its place if the memory budget has no room for it.
    #[inline]
    fn bound_reply(&mut self, reply: &mut Reply) {
        let length = reply.attachment.len() + reply.result.as_ref().map_or(0, |message| message.len());
        if length >= LARGE_REPLY {
            self.bound_large_reply(length, reply);
        }
    }

    #[cold]
    fn bound_large_reply(&mut self, length: usize, reply: &mut Reply) {
        self.fairness.record_reply(length);
        // The request may be gone by now.
        self.report_held();
        if length <= self.account.remaining() {
            return self.account.charge(length);
        }
        self.registration.connection.refused(Refusal::Memory);
        *reply = Reply::failure(memory_budget::exhausted());
    }

    #[cold]
    fn answer_refused(&mut self, ticket: S::Ticket, status: Status) {
        if self.session.reject(ticket, status, &mut self.out) {
            self.finish();
        }
    }

    #[cold]
    fn answer_corrupt(&mut self, ticket: S::Ticket, status: Status) {
        if status.code() == Code::ResourceExhausted && status.retry() == Retry::Never {
            self.registration.connection.refused(Refusal::TooLarge);
        }
        match S::decompression_failure(&ticket, status) {
            Ok(status) => self.session.reply(ticket, Reply::failure(status), &mut self.out),
            // In its protocol it ends the connection, and stays unanswered.
            Err(_) => self.give_up(),
        }
    }

    /// Answers a call whose handler accepted streams. Each goes on as a call of its own, unless the peer is not heard any
    /// more.
    fn accept(&mut self, mut ticket: S::Ticket, reply: Reply, accepted: AcceptedStreams) {
        let tickets = match self.state {
            State::Serving => self.session.accept_streams(&mut ticket, &accepted.options),
            State::Finishing | State::Lingering => Vec::new(),
        };
        self.session.reply(ticket, reply, &mut self.out);
        let idle = accepted.options.idle_timeout.map(ticks);
        if idle.is_some() {
            self.look_at_streams = 0;
        }
        for (ticket, accepted) in tickets.into_iter().zip(accepted.streams) {
            self.calls.started += 1;
            let (stream, sending) = self.streams.adopt(accepted, idle);
            let owed = PendingReply { ticket, call_record: None };
            // What its call left to it ended with that.
            let inherited = CallScope::default();
            let site = CallSite::new(self.dispatch.connection().clone(), None);
            let running =
                RunningCall::new(sending, site, owed, None, inherited, Some(stream), Delivery::Answered);
            self.in_flight.push(running);
        }
    }

    fn end_stream(&mut self, stream: StreamId, owed: PendingReply<S::Ticket>, mut ending: Outcome) {
        let PendingReply { ticket, mut call_record } = owed;
        unsendable::refuse::<S>(&ticket, &mut ending);
        self.calls.ended(ending.succeeded());
        if let Some(call_record) = &mut call_record {
            call_record.set_outcome(&ending);
        }
        let closes = matches!(ending, Outcome::CloseConnection);
        match ending {
            Outcome::Unauthenticated(status) => {
                self.streams.forget(stream, &mut self.session, &mut self.out);
                self.answer_refused(ticket, status);
            }
            Outcome::Corrupt(status) => {
                self.streams.forget(stream, &mut self.session, &mut self.out);
                self.answer_corrupt(ticket, status);
            }
            ending => self.streams.close(stream, ticket, ending, &mut self.session, &mut self.out),
        }
        if closes {
            self.finish();
        }
    }

    fn push(&mut self) {
        if self.state != State::Serving || self.has_write_backlog() {
            return;
        }
        let hooks = &self.listener.server.hooks;
        for unasked in self.registration.connection.take_pushes() {
            if !hooks.is_empty() {
                hooks.pushed(&self.dispatch.caller().peer, &unasked.as_push());
            }
            // That the protocol cannot push was said when the message was queued.
            let _ = match unasked {
                ServerPush::Push(push) => self.session.push(push, &mut self.out),
                ServerPush::Published(topic, data) => self.session.publish(&topic, data, &mut self.out),
            };
        }
    }

    /// Writes what there is to write, then reads what there is to read. `None`: there is more to do.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<SessionEnd>>> {
        let waiting = self.unwritten();
        let written = self.stream.poll_flush(cx, &mut self.out)?.is_ready();
        self.transferred.written += waiting.saturating_sub(self.unwritten()) as u64;
        if self.streams.has_held_back_messages() && !self.has_write_backlog() {
            return Poll::Ready(Ok(None));
        }
        match self.state {
            State::Serving | State::Finishing if self.fairness.is_exhausted() => self.poll_yield(),
            State::Serving if !self.inbox_drained && !self.saturated() => Poll::Ready(Ok(None)),
            State::Serving if self.inbox_drained && !self.has_enough() && !self.is_read_paused() => {
                self.poll_fill(cx, written)
            }
            State::Serving if self.may_read_ahead() => self.poll_fill(cx, written),
            State::Serving => Poll::Pending,
            State::Finishing if written && self.in_flight.is_empty() => self.poll_finish(cx),
            State::Finishing => Poll::Pending,
            State::Lingering => self.poll_linger(cx),
        }
    }

    fn poll_yield(&mut self) -> Poll<io::Result<Option<SessionEnd>>> {
        self.fairness.poll_budget(&self.registration.connection).map(|()| Ok(None))
    }

    /// Whether more has been read than is looked at before an answer is given. Some is read all the same, since that
    /// is how the end of the connection is seen.
    fn has_enough(&self) -> bool {
        self.inbox.bytes.len() >= AHEAD && self.session.blocks_input()
    }

    /// Whether some is read though no more calls are taken: so the end of the connection is seen while handlers wait.
    fn may_read_ahead(&self) -> bool {
        self.saturated()
            && !self.has_write_backlog()
            && !self.is_read_paused()
            && self.inbox.bytes.len() < AHEAD
    }

    #[inline]
    fn poll_fill(&mut self, cx: &mut Context<'_>, written: bool) -> Poll<io::Result<Option<SessionEnd>>> {
        ready!(self.fairness.poll_budget(&self.registration.connection));
        // What is read behind calls that wait for the answer to another is not to make these look younger.
        let waits = !self.inbox.bytes.is_empty() && (self.session.blocks_input() || self.saturated());
        match self.inbox.poll_fill(self.stream, cx, self.session.bytes_needed())? {
            // The peer sends no more but may still read: what it asked for is answered.
            Poll::Ready(0) => {
                self.half_closed = true;
                // A request whose credential is being judged, or has just been, may be whole already.
                if mem::take(&mut self.has_authenticated) {
                    return Poll::Ready(Ok(None));
                }
                if self.is_judging() {
                    return Poll::Pending;
                }
                self.finish();
            }
            Poll::Ready(n) => {
                self.fairness.record_read(n);
                self.transferred.received += n as u64;
                if !waits {
                    self.arrival.mark();
                }
            }
            Poll::Pending if self.registration.connection.has_pushes() && !self.has_write_backlog() => {}
            Poll::Pending => {
                let settled = written && self.in_flight.is_empty() && !self.session.has_pending_output();
                let quiet = self.inbox.bytes.is_empty() && !self.session.expects();
                if !(self.draining && settled && (quiet || self.is_overdue())) {
                    return Poll::Pending;
                }
                self.finish();
            }
        }
        Poll::Ready(Ok(None))
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<SessionEnd>>> {
        if !matches!(self.end, SessionEnd::Closed) {
            return Poll::Ready(Ok(Some(mem::replace(&mut self.end, SessionEnd::Closed))));
        }
        ready!(self.stream.poll_shutdown(cx))?;
        self.state = State::Lingering;
        Poll::Ready(Ok(None))
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<SessionEnd>>> {
        self.inbox.bytes.clear();
        ready!(self.fairness.poll_budget(&self.registration.connection));
        let n = ready!(self.inbox.poll_fill(self.stream, cx, 0))?;
        self.fairness.record_read(n);
        self.linger_budget = self.linger_budget.saturating_sub(n);
        Poll::Ready(Ok((n == 0 || self.linger_budget == 0).then_some(SessionEnd::Closed)))
    }

    /// Leaves the connection to another session, once all that is owed is written.
    fn hand_over(&mut self, end: SessionEnd) {
        self.finish();
        self.end = end;
    }

    /// The peer broke the protocol: as [`finish`](Self::finish), but little of what it still sends is read.
    fn give_up(&mut self) {
        self.linger_budget = LINGERED;
        self.finish();
    }

    /// Takes on nothing more; what is owed is still written, except for calls that go on only while the peer is
    /// heard.
    fn finish(&mut self) {
        if self.state == State::Serving {
            self.state = State::Finishing;
            self.streams.cancel_all();
            self.in_flight.cancel_streams();
        }
    }

    /// Whether the peer or the handlers lag so far behind that nothing more is taken. While there are streams,
    /// handlers wait for what comes next: it is taken, and only further calls are refused.
    fn saturated(&self) -> bool {
        let crowded = self.account.calls() >= self.listener.server.limits.in_flight_per_connection;
        self.has_write_backlog() || crowded && self.streams.is_empty() || self.dispatch.is_judging()
    }

    /// Whether nothing is read, since the connection holds more than its share of the memory budget. If most of what it
    /// holds waits for the peer's windows, it must read how these open; if most is subscriptions, it must read that the
    /// peer leaves. So it can hold at most as much again meanwhile.
    fn is_read_paused(&self) -> bool {
        self.is_over_share()
            && self.session.unsent() + self.subscriptions.held_bytes() <= self.account.bytes() / 2
    }

    /// Whether a server that goes away has waited long enough for what the peer has begun.
    fn is_overdue(&self) -> bool {
        self.registration.tick().saturating_sub(self.draining_since) >= DRAIN_PATIENCE
    }

    /// Whether the peer has left too much unread.
    fn has_write_backlog(&self) -> bool {
        self.unwritten() >= self.listener.server.limits.unsent
    }

    /// Bytes that wait for the socket.
    fn unwritten(&self) -> usize {
        self.out.len() + self.stream.unwritten()
    }

    /// Gives back what a waiting connection does not need and notes what it waits for.
    fn release_buffers(&mut self) {
        if !self.fairness.has_yielded() {
            self.inbox.release_spare();
        }
        if let Some(buffer) = self.out.reclaim() {
            scratch::return_buffer(buffer);
        }
        let now = self.registration.tick();
        let entry = &self.registration.connection;
        entry.record_calls(self.calls);
        let (received, sent) = self.bytes_before;
        entry.record_bytes(received + self.transferred.received, sent + self.transferred.written);
        // Mostly it has answered all again within a tick, and nothing is different.
        let holds = self.inbox.buffered_bytes() + self.stream.buffered_bytes() + self.session.buffered() > 0;
        let rests = self.state == State::Serving && !holds && self.is_idle();
        if rests && self.rested == now {
            self.account.report_held(0);
            self.transferred.took = false;
            return;
        }
        self.rested = if rests && !self.pauses { now } else { u32::MAX };
        self.report_held();
        // Its own clocks judge all but how long it takes to close.
        let phase =
            if self.state == State::Lingering { ConnectionPhase::Closing } else { ConnectionPhase::Busy };
        if phase != entry.phase() {
            entry.waits(phase, now);
        }
        let alarm = self.clocks.observe(now, self.activity());
        entry.idles(self.clocks.idle_since());
        if let Some(at) = self.clocks.moved() {
            entry.moved(at);
        }
        self.transferred.took = false;
        let overdue = if self.draining { self.draining_since + DRAIN_PATIENCE } else { u32::MAX };
        let streams = if self.streams.is_empty() { u32::MAX } else { self.look_at_streams.max(now + 1) };
        entry.wake_at(alarm.min(streams).min(if now < overdue { overdue } else { u32::MAX }));
        self.pauses = self.is_read_paused() || self.saturated();
        let wants_ticks = self.session.needs_ticks() || self.is_read_paused();
        if wants_ticks != self.wants_ticks {
            self.wants_ticks = wants_ticks;
            entry.wants_ticks(wants_ticks);
        }
    }

    /// Reports what the connection holds. One that holds more than it may ends.
    fn report_held(&self) {
        let within = self.session.buffered() + self.session.unsent();
        let held = self.inbox.buffered_bytes() + self.stream.buffered_bytes() + self.out.len() + within;
        self.account.report_held(held);
        if self.account.exceeds_quota() {
            self.registration.connection.close(Closing::Memory);
        }
    }

    fn activity(&self) -> Activity {
        let reads = self.state == State::Serving && !self.saturated() && !self.session.blocks_input();
        let unsent = self.session.unsent();
        let mid_message = reads && self.session.is_mid_message(&self.inbox.bytes);
        let incomplete = match () {
            // What it would bring, or the window without which its answers cannot leave, will not be read.
            () if reads
                && self.is_read_paused()
                && (mid_message || unsent > 0 || self.session.needs_ticks()) =>
            {
                Some(IncompletePart::Paused)
            }
            () if !mid_message => None,
            () if self.session.is_in_head() => Some(IncompletePart::Head),
            () => Some(IncompletePart::Message),
        };
        let owes = !self.in_flight.is_empty();
        Activity {
            received: self.transferred.received + self.stream.received_beside(),
            written: self.transferred.written,
            incomplete,
            took: self.transferred.took,
            writing: self.unwritten() > 0,
            unsent: if owes { 0 } else { unsent },
            half_closed: self.half_closed && owes,
            idle: self.is_idle(),
            // Its answer to a PING would not be read, or waits behind what it has not read itself.
            busy: reads && !self.is_read_paused() && self.unwritten() == 0 && (owes || unsent > 0),
        }
    }

    /// Whether nothing is under way, so that the connection may be closed if that lasts.
    fn is_idle(&self) -> bool {
        match self.state {
            State::Lingering => false,
            _ if !self.in_flight.is_empty() || self.session.needs_ticks() => false,
            State::Serving if self.session.is_mid_message(&self.inbox.bytes) => false,
            _ if self.unwritten() > 0 || self.session.unsent() > 0 => false,
            _ if self.subscriptions.expect_silence() => false,
            // The transport itself notices whether the peer is still there.
            _ if !self.stream.signals_close() => false,
            // One that never succeeded is no client that waits for its next call.
            _ => S::RECONNECTS || self.calls.succeeded == 0,
        }
    }
}

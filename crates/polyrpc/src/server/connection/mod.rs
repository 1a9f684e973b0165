mod memory;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, abortable};
use futures_util::stream::FuturesUnordered;
use polyrpc_core::session::server::{Incomplete, KeepReason, Streaming as _, Ticket as _};
use polyrpc_core::session::{Handover, Server as Session, ServerEvent, Verdict, ViolationKind};
use polyrpc_core::{
    Code, Credential, Head, Metadata, Outbox, Reply, Retry, Status, StreamId, Topic, Violation,
};

use super::arrival_time::ArrivalTime;
use super::authentication::AuthenticationResult;
use super::call_record::CallRecord;
use super::connection_timeouts::{Activity, ConnectionTimeouts, IncompletePart, TimeoutAction};
use super::connections::{ConnectionCommand, ConnectionGuard, ConnectionPhase, ServerPush};
use super::dispatch::{CallEnvironment, Dispatcher, FirstPoll, HeadDecision, Rejection};
use super::fairness::FairnessBudget;
use super::hook_chain::RedirectedNames;
use super::in_flight::{Delivery, FinishedCall, InFlight, InFlightCall};
use super::incidents::{Closing, Refusal};
use super::listener_context::ListenerContext;
use super::poll_round;
use super::streams::Streams;
use super::subscription::{self, SubscriptionAdmission};
use super::tick::{TICK, ticks};
use super::topics::Subscriptions;
use super::unsupported_metadata;
use crate::call::{AcceptedStreams, CallSite, Calls, ConnectionFacts, Outcome, OutcomeKind};
use crate::memory_budget::Account;
use crate::propagation::CallScope;
use crate::transport::{Inbox, UpgradableStream, scratch};

/// Parts of a connection that are handed from one session to the next.
pub(super) struct ConnectionParts<'a> {
    pub(super) stream: &'a mut UpgradableStream,
    pub(super) inbox: &'a mut Inbox,
    pub(super) registration: &'a ConnectionGuard,
    pub(super) listener: &'a ListenerContext,
    pub(super) facts: Arc<ConnectionFacts>,
}

/// A connection with its protocol type-erased.
pub(super) trait Driver: Send {
    /// Serves until the connection ends or changes its protocol. Dropping the driver drops the pending handlers.
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd>;
}

/// Drives one session over one socket.
///
/// One task does all the work of a connection: it takes every message out of what one read returned, polls each handler
/// once in place, and writes all replies of the round at once. Only pending handlers are stored.
pub(super) struct Connection<'a, S: Session> {
    stream: &'a mut UpgradableStream,
    inbox: &'a mut Inbox,
    registration: &'a ConnectionGuard,
    listener: &'a ListenerContext,
    dispatch: Dispatcher<'a>,
    session: S,
    out: Outbox,
    in_flight: InFlight<PendingReply<S::Ticket>>,
    streams: Streams,
    subscriptions: Subscriptions,
    /// The layers that the subscription by number has passed through.
    numbered: Option<AbortHandle>,
    state: State,
    /// Reason of the end, once the session has ended.
    end: SessionEnd,
    /// Number of bytes still to read and discard from a peer after the connection was ended.
    linger_budget: usize,
    calls: Calls,
    /// Whether the peer has closed its sending half.
    half_closed: bool,
    /// Whether the session has been asked to accept no new calls.
    draining: bool,
    /// Whether the session has taken all complete messages from the inbox.
    inbox_drained: bool,
    write_batch: WriteBatch,
    fairness: FairnessBudget,
    /// Resources of the server that the connection holds.
    account: Arc<Account>,
    timeouts: ConnectionTimeouts,
    transferred: TransferredBytes,
    /// Bytes received and sent by the previous sessions.
    bytes_before: (u64, u64),
    /// Pending authentications other than those of calls.
    authenticating: Option<Box<FuturesUnordered<AuthenticationFuture>>>,
    /// Requests that were cancelled since pending authentications were last polled.
    cancelled_heads: Vec<StreamId>,
    /// Whether one has finished since the end of the input was last checked.
    has_authenticated: bool,
    /// When idle streams are checked next, in ticks.
    stream_check_tick: u32,
    /// Since when the session drains, in ticks.
    draining_since: u32,
    arrival: ArrivalTime,
    /// Number of heartbeats reported to the hooks.
    heartbeats: u64,
    /// When the session last received the time, in ticks.
    ticked: u32,
    /// Whether more timers of the session were due then than it handled.
    is_ticking: bool,
    /// The tick in which the connection last had no call in flight and no buffered bytes.
    rested: u32,
    /// Whether reading is paused for a reason other than the peer.
    pauses: bool,
    /// Number of ticks without reading; the session's timers do not count them.
    paused: u32,
    /// Whether the session needs ticks even if nothing arrives.
    wants_ticks: bool,
}

/// A call that has not been answered yet.
struct PendingReply<T> {
    ticket: T,
    /// Reports the end of the call to the hooks.
    call_record: Option<Box<CallRecord>>,
}

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Accepts calls.
    Serving,
    /// Accepts no calls, and ends when everything pending is written.
    Finishing,
    /// Everything is written and the sending half is closed. Further input is discarded, since closing with unread
    /// bytes would discard the last reply in transit.
    Lingering,
}

/// Why a session ended.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// The connection has ended.
    Closed,
    /// The peer continues in another protocol.
    Foreign,
    /// The peer continues in the protocol requested by `CONNECT`.
    Connect,
    /// The peer continues in HTTP/2, with a request that has already been received.
    Upgrade(Handover),
    /// The peer continues within a WebSocket.
    WebSocket,
}

/// Number of calls after which their replies are written although more calls have been received.
///
/// Writing once for all calls would need fewer system calls, but server and client would then work alternately and
/// sleep in between: with 64 callers on a connection that was less than half the rate, with more CPU time per call,
/// since waking a core costs more than a write. Writing in parts keeps both busy.
#[derive(Debug)]
struct WriteBatch {
    /// Calls taken since the inbox was last empty.
    calls: usize,
    /// Approximate number of calls in the longest of the recent rounds.
    usual_length: usize,
    /// Number of calls per part: the session's preference, and the current one.
    preferred_size: usize,
    size: usize,
}

/// In longer rounds the peer has enough to do in the meantime.
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

/// Maximum number of bytes to discard from a peer that violated the protocol before its connection is closed with
/// unread bytes. This suffices to deliver the reason to a peer with a bug; a flooding peer has megabytes in transit,
/// and reading them all would make the attack succeed.
const MAX_LINGER_BYTES: usize = 64 << 10;

/// Traffic of a connection.
#[derive(Debug, Default)]
struct TransferredBytes {
    received: u64,
    written: u64,
    /// Whether a complete message was taken since the connection last went to sleep.
    took: bool,
}

/// Pending authentication.
struct AuthenticationFuture {
    /// The request whose head contained the credential.
    head: Option<StreamId>,
    /// Whether it checks a credential. Otherwise it belongs to the layers of a subscription, which last for as long as
    /// that.
    is_check: bool,
    authentication: Pin<Box<dyn Future<Output = AuthenticationEvent> + Send>>,
}

impl Future for AuthenticationFuture {
    type Output = AuthenticationEvent;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AuthenticationEvent> {
        self.authentication.as_mut().poll(cx)
    }
}

/// Result of such an authentication.
enum AuthenticationEvent {
    Head(StreamId, Verdict),
    Subscription(Topic, Result<(), Status>),
    /// The layers have accepted a subscription.
    Admitted(Topic),
    /// A layer has rejected or ended a subscription.
    Unsubscribed,
    /// Another subscription has taken its place.
    Replaced,
}

/// Maximum number of pending authentications and subscriptions that have passed layers, of a connection.
const MAX_PENDING_AUTHENTICATIONS: usize = 4096;

/// Maximum number of bytes to read ahead while received calls await their replies.
const MAX_READ_AHEAD_BYTES: usize = 64 << 10;

/// Interval between checks of idle streams, in ticks: 4 s, or less if the idle timeout is shorter.
const STREAM_CHECK_TICKS: u32 = 16;

/// How long a draining server waits for messages that its peers have started to send, in ticks: 2 s.
const DRAIN_TIMEOUT_TICKS: u32 = 8;

impl<S: Session + Send> Driver for Connection<'_, S> {
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        let end = ready!(self.poll_drive(cx)).unwrap_or_else(|error| {
            // The kernel's limit for a peer that acknowledges nothing: see `Limits::write_timeout`.
            if error.kind() == io::ErrorKind::TimedOut {
                self.registration.connection.record_closing(Closing::Write);
            }
            SessionEnd::Closed
        });
        self.dispatch.close();
        // The next protocol starts with its own first byte.
        let entry = &self.registration.connection;
        entry.set_phase(ConnectionPhase::Silent, self.registration.tick());
        entry.wake_at(u32::MAX);
        entry.set_wants_ticks(false);
        entry.turns().leave(entry);
        Poll::Ready(end)
    }
}

impl<'a, S: Session> Connection<'a, S> {
    /// Boxed, so that a connection takes the room of its own protocol instead of the largest one's.
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
            numbered: None,
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
            write_batch: WriteBatch::new(S::WRITE_BATCH),
            fairness: FairnessBudget::default(),
            account: registration.connection.account.clone(),
            timeouts: ConnectionTimeouts::new(
                registration.limits(),
                registration.connection.opened_at(),
                registration.connection.id(),
            ),
            transferred: TransferredBytes::default(),
            bytes_before: registration.connection.bytes(),
            authenticating: None,
            cancelled_heads: Vec::new(),
            has_authenticated: false,
            stream_check_tick: 0,
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

    /// Continues until everything is pending: the peer's input, the peer's reading, and the handlers.
    fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<SessionEnd>> {
        self.registration.connection.set_waker(cx.waker());
        self.out.lend_buffer(scratch::borrow());
        self.streams.wake();
        self.fairness.start_turn(&self.registration.connection);
        poll_round::begin();
        self.tick();
        let end = loop {
            if self.handle_command() == ConnectionCommand::Close {
                if self.unwritten_bytes() > 0 {
                    // Otherwise the kernel would keep the bytes that the peer does not read.
                    self.stream.reset();
                }
                break Poll::Ready(Ok(SessionEnd::Closed));
            }
            self.take_calls(cx);
            self.report_heartbeats();
            self.write_finished_replies(cx);
            let unsent = self.listener.server.limits.unsent_per_connection;
            if self.streams.pump(&mut self.session, &mut self.out, unsent) && self.session.blocks_input() {
                // Calls that were held back may continue.
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

    /// Passes the time to all parts once per tick, and handles expired timers.
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
        let (received, written) = (self.bytes_received(), self.transferred.written);
        while let Some(due) = self.timeouts.due(now, received, written) {
            match due {
                TimeoutAction::Close(cause) => return self.time_out(cause),
                TimeoutAction::Drain => self.registration.connection.send_command(ConnectionCommand::Drain),
                TimeoutAction::Ping => {
                    let ping_sent = self.session.ping(&mut self.out);
                    self.timeouts.record_ping(now, ping_sent);
                }
            }
        }
        if now >= self.stream_check_tick && !self.streams.is_empty() {
            self.end_idle_streams(now);
        }
        if self.draining && self.is_overdue() {
            self.in_flight.fail_gathering(&Status::unavailable("the server is shutting down"));
        }
    }

    /// Passes the time to the session, and again in the next turn if more timers are due.
    fn tick_session(&mut self) {
        let unsent = self.session.unsent();
        self.is_ticking = self.session.tick(TICK * (self.ticked - self.paused), &mut self.out);
        // Nothing was read meanwhile: the session has given up what its peer does not read.
        if self.session.unsent() < unsent {
            self.account.responses_given_up();
        }
        if self.is_ticking {
            self.fairness.exhaust();
        }
    }

    /// Ends the connection after a timeout, with an error message if the peer may still read it.
    #[cold]
    fn time_out(&mut self, cause: Closing) {
        let entry = &self.registration.connection;
        let text = match cause {
            Closing::Head | Closing::Message => {
                entry.record_closing(cause);
                "the rest of a message did not arrive in time"
            }
            // The peer does not read, or gets no error message; its remaining time is not used.
            _ => return entry.close(cause),
        };
        self.session.abort(&Status::deadline_exceeded(text), &mut self.out);
        self.inbox.bytes.clear();
        // Their replies would not be read.
        (0..self.in_flight.abort_all()).for_each(|_| self.calls.count_end(false));
        self.give_up();
    }

    #[cold]
    fn end_idle_streams(&mut self, now: u32) {
        let allowed = self.listener.server.limits.stream_idle_timeout.map_or(u32::MAX, ticks);
        let shortest = self.streams.shortest_idle(allowed);
        if shortest == u32::MAX {
            self.stream_check_tick = u32::MAX;
            return;
        }
        self.stream_check_tick = now + STREAM_CHECK_TICKS.min(shortest.div_ceil(4)).max(1);
        for stream in self.streams.idle(allowed) {
            self.registration.connection.record_refusal(Refusal::StreamIdle);
            self.in_flight.fail(stream, Status::deadline_exceeded("the stream was idle for too long"));
        }
    }

    fn handle_command(&mut self) -> ConnectionCommand {
        let order = self.registration.connection.command();
        match order {
            ConnectionCommand::Serve | ConnectionCommand::Close => {}
            ConnectionCommand::AnnounceClose => self.session.announce_close(),
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

    /// Takes calls out of the inbox until the peer or the handlers lag behind, but at most one part of a round.
    fn take_calls(&mut self, cx: &mut Context<'_>) {
        self.inbox_drained = false;
        let end = self.write_batch.calls.saturating_add(self.write_batch.size);
        let over_share = self.is_over_share();
        let mut renamed = RedirectedNames::default();
        while self.state == State::Serving
            && !self.is_saturated()
            && self.write_batch.calls < end
            && !self.fairness.is_exhausted()
        {
            match self.session.next_event(&mut self.inbox.bytes, &mut self.out) {
                Ok(Some(ServerEvent::Call(call, ticket))) => {
                    self.transferred.took = true;
                    self.calls.started += 1;
                    self.fairness.record_call(call.head.metadata.len());
                    self.fairness.record_message(call.body.len());
                    self.write_batch.calls += 1;
                    let (streams, arrival) = (&mut self.streams, &mut self.arrival);
                    let found = CallEnvironment { over_share, streams, arrival };
                    let (started, call_record) = self.dispatch.start(call, &ticket, &mut renamed, found, cx);
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
                        self.dispatch.open(call, &ticket, &mut renamed, stream, found);
                    self.track_or_answer(started, PendingReply { ticket, call_record });
                }
                Ok(Some(ServerEvent::Message(stream, message))) => {
                    self.transferred.took = true;
                    if !self.streams.deliver(stream, message, &mut self.session, &mut self.out) {
                        self.in_flight.cancel(stream);
                    }
                }
                Ok(Some(ServerEvent::End(stream))) => self.streams.end_of_stream(stream),
                Ok(Some(ServerEvent::Room(stream))) => self.streams.resume_sending(stream),
                Ok(Some(ServerEvent::Cancelled(stream))) => {
                    self.drop_authentication(stream);
                    self.streams.cancel(stream);
                    self.in_flight.cancel(stream);
                }
                Ok(Some(ServerEvent::Head(head, stream))) => {
                    let verdict = self.dispatch.check_head(&head, over_share);
                    self.apply_head_decision(stream, verdict);
                }
                Ok(Some(ServerEvent::Alive)) => {}
                Ok(Some(ServerEvent::Pause)) => self.fairness.exhaust(),
                Ok(Some(ServerEvent::Subscribe(topic))) => {
                    // Subscribing takes a lock that all connections share.
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
                        self.registration.connection.record_session_refusals(refusals);
                    }
                    if self.session.is_finished() {
                        self.finish();
                    }
                    return;
                }
                // The session has already written its error message to the outbox.
                Err(violation) => self.end_with_violation(&violation),
            }
        }
    }

    #[cold]
    fn end_with_violation(&mut self, violation: &Violation) {
        self.registration.connection.record_closing(match violation.kind() {
            ViolationKind::Malformed => Closing::Malformed,
            ViolationKind::TooLarge => Closing::TooLarge,
            ViolationKind::Flood => Closing::Flood,
        });
        if violation.kind() == ViolationKind::TooLarge {
            self.registration.connection.incidents.count(Refusal::TooLarge);
        }
        self.give_up();
    }

    /// Passes the decision about the head of a request to the session.
    fn apply_head_decision(&mut self, stream: StreamId, verdict: HeadDecision) {
        match verdict {
            HeadDecision::Now(verdict) => {
                if self.session.apply_verdict(stream, verdict, &mut self.out) {
                    self.finish();
                }
            }
            HeadDecision::Later(authentication) => {
                let authentication =
                    Box::pin(async move { AuthenticationEvent::Head(stream, authentication.await) });
                self.authenticate_later(AuthenticationFuture {
                    head: Some(stream),
                    is_check: true,
                    authentication,
                });
            }
            HeadDecision::TooMany => self.close_for_wrong_credentials(),
        }
    }

    /// Ends the connection if it has too many; streams have a limit of their own.
    fn authenticate_later(&mut self, authentication: AuthenticationFuture) {
        let running = self.authenticating.get_or_insert_default();
        if running.len() >= MAX_PENDING_AUTHENTICATIONS {
            return self.finish();
        }
        running.push(authentication);
    }

    /// Drops the pending authentication of this head when authentications are next polled.
    fn drop_authentication(&mut self, stream: StreamId) {
        if self.is_authenticating() {
            self.cancelled_heads.push(stream);
        }
    }

    /// Drops those of all cancelled heads together: a peer may cancel each of a thousand in one write.
    #[cold]
    fn drop_cancelled_heads(&mut self) {
        let mut cancelled = mem::take(&mut self.cancelled_heads);
        cancelled.sort_unstable();
        if let Some(running) = &mut self.authenticating {
            let is_cancelled = |head: StreamId| cancelled.binary_search(&head).is_ok();
            let all = mem::take(&mut **running);
            running.extend(all.into_iter().filter(|waiting| !waiting.head.is_some_and(is_cancelled)));
        }
    }

    fn is_authenticating(&self) -> bool {
        self.authenticating.as_ref().is_some_and(|running| !running.is_empty())
    }

    /// Whether a credential is being checked on which a request depends that may have arrived as a whole.
    fn is_checking_credential(&self) -> bool {
        self.authenticating.as_ref().is_some_and(|running| running.iter().any(|pending| pending.is_check))
    }

    /// Applies finished authentications.
    fn apply_authenticated(&mut self, cx: &mut Context<'_>) {
        if !self.cancelled_heads.is_empty() {
            self.drop_cancelled_heads();
        }
        while let Some(running) = self.authenticating.as_mut().filter(|running| !running.is_empty())
            && let Poll::Ready(Some(verdict)) = running.poll_next_unpin(cx)
        {
            self.inbox_drained = false;
            self.has_authenticated = true;
            match verdict {
                AuthenticationEvent::Head(stream, verdict) => {
                    self.apply_head_decision(stream, HeadDecision::Now(verdict))
                }
                AuthenticationEvent::Subscription(topic, Ok(())) => self.pass_subscription(topic),
                AuthenticationEvent::Admitted(topic) => self.subscriptions.add(topic),
                AuthenticationEvent::Subscription(_, Err(_)) | AuthenticationEvent::Unsubscribed => {
                    self.finish()
                }
                AuthenticationEvent::Replaced => {}
            }
        }
    }

    /// Ends a connection with too many wrong credentials.
    #[cold]
    fn close_for_wrong_credentials(&mut self) {
        self.registration.connection.record_closing(Closing::Credentials);
        self.give_up();
    }

    /// Reports heartbeats that the session has answered itself to the hooks.
    fn report_heartbeats(&mut self) {
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

    /// Adds a subscription, without an acknowledgement. Ends the connection if it is not permitted or has too many.
    fn subscribe(&mut self, topic: Topic) {
        self.transferred.took = true;
        match self.subscriptions.begin(&topic) {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => return self.finish(),
        }
        match self.dispatch.authenticate(&Credential::Connection(None)) {
            AuthenticationResult::Accepted => self.pass_subscription(topic),
            AuthenticationResult::Refused(_) => self.finish(),
            AuthenticationResult::Later(authentication) => {
                let authentication =
                    Box::pin(async { AuthenticationEvent::Subscription(topic, authentication.await) });
                self.authenticate_later(AuthenticationFuture { head: None, is_check: true, authentication });
            }
            AuthenticationResult::TooMany => self.close_for_wrong_credentials(),
        }
    }

    /// Passes a subscription through the layers, if there are any.
    fn pass_subscription(&mut self, topic: Topic) {
        let layers = &self.listener.server.subscription_layers;
        if layers.is_empty() {
            return self.subscriptions.add(topic);
        }
        let SubscriptionAdmission { handling, admitted } =
            subscription::pass_layers(&topic, layers, self.dispatch.connection());
        let (handling, abort) = abortable(handling);
        // A connection has one subscription by number: the previous one ends.
        if matches!(topic, Topic::Id(_))
            && let Some(previous) = self.numbered.replace(abort)
        {
            previous.abort();
        }
        let authentication = Box::pin(async move {
            match admitted.await {
                Ok(()) => AuthenticationEvent::Admitted(topic),
                // Its layers ended without admitting it; the next future reports that.
                Err(_) => AuthenticationEvent::Replaced,
            }
        });
        self.authenticate_later(AuthenticationFuture { head: None, is_check: false, authentication });
        let authentication = Box::pin(async move {
            match handling.await {
                Ok(_) => AuthenticationEvent::Unsubscribed,
                Err(_) => AuthenticationEvent::Replaced,
            }
        });
        self.authenticate_later(AuthenticationFuture { head: None, is_check: false, authentication });
    }

    fn track_or_answer(&mut self, started: FirstPoll, pending: PendingReply<S::Ticket>) {
        match started {
            FirstPoll::Finished(outcome) => self.end_call(pending, outcome),
            FirstPoll::Pending { handling, site, deadline, inherited, delivery, bytes } => {
                let stream = pending.ticket.stream();
                let running =
                    InFlightCall::new(handling, site, pending, deadline, inherited, stream, delivery);
                self.in_flight.push(running.with_held_bytes(bytes));
            }
            FirstPoll::AwaitingMessage { gathering, site, deadline, inherited, bytes } => {
                let stream = pending.ticket.stream();
                let running =
                    InFlightCall::with_pending_message(gathering, site, pending, deadline, inherited, stream);
                self.in_flight.push(running.with_held_bytes(bytes));
            }
            FirstPoll::Rejected(Rejection::Failed(status)) => self.end_call(pending, Outcome::failed(status)),
            FirstPoll::Rejected(Rejection::Expired) => {
                self.registration.record_expired_call();
                self.end_call(pending, Outcome::expired());
            }
            FirstPoll::Rejected(Rejection::Unauthenticated(status)) => self.refuse(pending, status),
            FirstPoll::Rejected(Rejection::TooManyFailures) => {
                self.calls.count_end(false);
                self.close_for_wrong_credentials();
            }
        }
    }

    #[cold]
    fn refuse(&mut self, PendingReply { ticket, mut call_record }: PendingReply<S::Ticket>, status: Status) {
        self.calls.count_end(false);
        if let Some(call_record) = &mut call_record {
            call_record.set_failure(&status);
        }
        if self.session.reject(ticket, status, &mut self.out) {
            self.finish();
        }
    }

    fn write_finished_replies(&mut self, cx: &mut Context<'_>) {
        self.apply_authenticated(cx);
        while !self.fairness.is_exhausted()
            && let Some(FinishedCall { pending, outcome, streamed, .. }) = self.in_flight.poll_ended(cx)
        {
            self.fairness.record_call(0);
            match (outcome, streamed) {
                (Some(outcome), None) => self.end_call(pending, outcome),
                (Some(outcome), Some(stream)) => self.end_stream(stream, pending, outcome),
                (None, None) => self.calls.count_end(false),
                (None, Some(stream)) => {
                    self.calls.count_end(false);
                    self.streams.forget(stream, &mut self.session, &mut self.out);
                }
            }
            // A session that answers in order may have held calls back until this reply.
            self.inbox_drained = false;
        }
        if poll_round::is_over() {
            self.fairness.exhaust();
        }
    }

    fn end_call(
        &mut self,
        PendingReply { ticket, mut call_record }: PendingReply<S::Ticket>,
        mut outcome: Outcome,
    ) {
        unsupported_metadata::reject(&ticket, &mut outcome);
        self.calls.count_end(outcome.is_success());
        if let Some(call_record) = &mut call_record {
            call_record.set_outcome(&outcome);
        }
        // Messages that a handler has pushed are sent before its reply, as by rpcx's servers.
        self.push();
        if let OutcomeKind::Reply(reply) = &mut outcome.0 {
            self.bound_reply(reply);
        }
        match outcome.0 {
            OutcomeKind::Reply(reply) => self.session.reply(ticket, reply, &mut self.out),
            OutcomeKind::Unauthenticated(status) => self.answer_refused(ticket, status),
            OutcomeKind::Corrupt(status) => self.answer_corrupt(ticket, status),
            OutcomeKind::Accept(reply, accepted) => self.accept(ticket, *reply, accepted),
            OutcomeKind::Finish { result, trailers } => self.end_response(ticket, result, trailers),
            OutcomeKind::CloseConnection => self.finish(),
        }
    }

    /// Ends a streamed response; without streaming, it is an empty reply.
    fn end_response(&mut self, ticket: S::Ticket, result: Result<(), Status>, trailers: Metadata) {
        match self.session.streaming() {
            Some(streaming) => streaming.finish(ticket, result, trailers, &mut self.out),
            None => {
                let reply = Reply::new(result.map(|()| Bytes::new()), Head::default());
                self.session.reply(ticket, Reply { trailers, ..reply }, &mut self.out);
            }
        }
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
            self.registration.connection.record_refusal(Refusal::TooLarge);
        }
        match ticket.decompression_failure(status) {
            Ok(status) => self.session.reply(ticket, Reply::failure(status), &mut self.out),
            // In this protocol a decompression failure ends the connection without a reply.
            Err(_) => self.give_up(),
        }
    }

    /// Answers a call whose handler accepted streams. Each stream continues as a call of its own, unless input is no
    /// longer read.
    fn accept(&mut self, mut ticket: S::Ticket, reply: Reply, accepted: AcceptedStreams) {
        let tickets = match (self.state, self.session.streaming()) {
            (State::Serving, Some(streaming)) => streaming.accept_streams(&mut ticket, &accepted.options),
            _ => Vec::new(),
        };
        self.session.reply(ticket, reply, &mut self.out);
        let idle = accepted.options.idle_timeout.map(ticks);
        if idle.is_some() {
            self.stream_check_tick = 0;
        }
        for (ticket, accepted) in tickets.into_iter().zip(accepted.streams) {
            self.calls.started += 1;
            let (stream, sending) = self.streams.register_accepted(accepted, ticket.carrier(), idle);
            let pending = PendingReply { ticket, call_record: None };
            // The scope of the original call ended with it.
            let inherited = CallScope::default();
            let site = CallSite::new(self.dispatch.connection().clone(), None);
            let running =
                InFlightCall::new(sending, site, pending, None, inherited, Some(stream), Delivery::Answered);
            self.in_flight.push(running);
        }
    }

    fn end_stream(&mut self, stream: StreamId, pending: PendingReply<S::Ticket>, mut outcome: Outcome) {
        let PendingReply { ticket, mut call_record } = pending;
        unsupported_metadata::reject(&ticket, &mut outcome);
        self.calls.count_end(outcome.is_success());
        if let Some(call_record) = &mut call_record {
            call_record.set_outcome(&outcome);
        }
        if let OutcomeKind::Reply(reply) = &outcome.0 {
            self.account.add_unread(memory::reply_length(reply));
        }
        let closes = matches!(outcome.0, OutcomeKind::CloseConnection);
        match outcome.0 {
            OutcomeKind::Unauthenticated(status) => {
                self.streams.forget(stream, &mut self.session, &mut self.out);
                self.answer_refused(ticket, status);
            }
            OutcomeKind::Corrupt(status) => {
                self.streams.forget(stream, &mut self.session, &mut self.out);
                self.answer_corrupt(ticket, status);
            }
            outcome => self.streams.close(stream, ticket, outcome.into(), &mut self.session, &mut self.out),
        }
        if closes {
            self.finish();
        }
    }

    /// Sends the messages that no call requested.
    #[inline]
    fn push(&mut self) {
        if self.registration.connection.has_pushes() {
            self.push_queued();
        }
    }

    fn push_queued(&mut self) {
        if self.state != State::Serving || self.has_write_backlog() {
            return;
        }
        let hooks = &self.listener.server.hooks;
        for push in self.registration.connection.take_pushes() {
            // If the protocol cannot push, that was reported when the message was queued.
            let Some(pushing) = self.session.pushing() else { continue };
            if !hooks.is_empty() {
                hooks.on_push(&self.dispatch.caller().peer, &push.as_push());
            }
            // Messages that the protocol cannot carry are not sent.
            let _ = match push {
                ServerPush::Push(push) => pushing.push(push, &mut self.out),
                ServerPush::Published(topic, data) => pushing.publish(&topic, data, &mut self.out),
            };
        }
    }

    /// Writes pending output, then reads available input. Returns `None` if there is more to do.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<SessionEnd>>> {
        let waiting = self.unwritten_bytes();
        let written = self.stream.poll_flush(cx, &mut self.out)?.is_ready();
        self.transferred.written += waiting.saturating_sub(self.unwritten_bytes()) as u64;
        if self.streams.has_held_back_messages() && !self.has_write_backlog() {
            return Poll::Ready(Ok(None));
        }
        match self.state {
            State::Serving | State::Finishing if self.fairness.is_exhausted() => self.poll_yield(),
            State::Serving if !self.inbox_drained && !self.is_saturated() => Poll::Ready(Ok(None)),
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

    /// Whether enough unprocessed input is buffered. Some is read even then, to detect the end of the connection.
    fn has_enough(&self) -> bool {
        self.inbox.bytes.len() >= MAX_READ_AHEAD_BYTES && self.session.blocks_input()
    }

    /// Whether to read although no more calls are taken, to detect the end of the connection while handlers are
    /// pending.
    fn may_read_ahead(&self) -> bool {
        self.is_saturated()
            && !self.has_write_backlog()
            && !self.is_read_paused()
            && self.inbox.bytes.len() < MAX_READ_AHEAD_BYTES
    }

    #[inline]
    fn poll_fill(&mut self, cx: &mut Context<'_>, written: bool) -> Poll<io::Result<Option<SessionEnd>>> {
        ready!(self.fairness.poll_budget(&self.registration.connection));
        // Bytes read behind calls that wait for another call's reply must not make these calls look younger.
        let waits = !self.inbox.bytes.is_empty() && (self.session.blocks_input() || self.is_saturated());
        let wanted = self.session.bytes_needed();
        let read = self.inbox.poll_fill_up_to(self.fairness.read_size(), self.stream, cx, wanted)?;
        let frames = self.stream.take_websocket_bytes();
        match read {
            // The peer sends no more but may still read: pending calls are answered.
            Poll::Ready(0) => {
                self.half_closed = true;
                // A request with a pending or just finished authentication may be complete already.
                if mem::take(&mut self.has_authenticated) {
                    return Poll::Ready(Ok(None));
                }
                if self.is_checking_credential() {
                    return Poll::Pending;
                }
                self.finish();
            }
            Poll::Ready(n) => {
                // The frames contain these bytes.
                self.fairness.record_read(frames.max(n));
                self.transferred.received += n as u64;
                if !waits {
                    self.arrival.mark();
                }
            }
            // Frames without payload: pings, for example.
            Poll::Pending if frames > 0 => self.fairness.record_read(frames),
            Poll::Pending if self.registration.connection.has_pushes() && !self.has_write_backlog() => {}
            Poll::Pending => {
                if !(self.draining && written && self.in_flight.is_empty() && self.is_drained()) {
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

    /// Hands the connection over to another session once all pending output is written.
    fn hand_over(&mut self, end: SessionEnd) {
        self.finish();
        self.end = end;
    }

    /// Ends the connection after a protocol violation: as [`finish`](Self::finish), but discards only little further
    /// input.
    fn give_up(&mut self) {
        self.linger_budget = MAX_LINGER_BYTES;
        self.finish();
    }

    /// Accepts no further calls. Pending replies are still written, except those of calls that need the peer's input.
    fn finish(&mut self) {
        if self.state == State::Serving {
            self.state = State::Finishing;
            self.streams.cancel_all();
            self.in_flight.cancel_streams();
        }
    }

    /// Whether the peer or the handlers lag so far behind that no more calls are taken. While there are streams,
    /// handlers wait for their messages: input is then read, and only further calls are rejected.
    fn is_saturated(&self) -> bool {
        let crowded = self.account.calls() >= self.listener.server.limits.in_flight_per_connection;
        self.has_write_backlog() || crowded && self.streams.is_empty() || self.dispatch.is_authenticating()
    }

    /// Whether a draining connection whose calls are answered may end.
    fn is_drained(&self) -> bool {
        match self.session.keep_reason() {
            KeepReason::Nothing => self.inbox.bytes.is_empty() || self.is_overdue(),
            KeepReason::Calls => self.is_overdue(),
            KeepReason::Room => false,
        }
    }

    /// Whether a draining server has waited long enough for messages that the peer has started to send.
    fn is_overdue(&self) -> bool {
        self.registration.tick().saturating_sub(self.draining_since) >= DRAIN_TIMEOUT_TICKS
    }

    /// Whether too much output is waiting for the peer to read it.
    fn has_write_backlog(&self) -> bool {
        self.unwritten_bytes() >= self.listener.server.limits.unsent_per_connection
    }

    /// Returns the number of bytes that wait for the socket.
    fn unwritten_bytes(&self) -> usize {
        self.out.len() + self.stream.unwritten_bytes()
    }

    /// Returns the number of bytes that this session has received, for its timeouts: those of a WebSocket's frames count
    /// too, since their data may arrive later.
    fn bytes_received(&self) -> u64 {
        self.transferred.received + self.stream.websocket_bytes_received()
    }

    /// Returns the number of bytes that this session and the previous ones have sent.
    fn bytes_sent(&self) -> u64 {
        self.bytes_before.1 + self.transferred.written
    }

    /// Releases the buffers of a waiting connection and records what it waits for.
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
        let (received, _) = self.bytes_before;
        entry.record_bytes(received + self.transferred.received, self.bytes_sent());
        // Usually all calls are answered within a tick, and nothing changes.
        let holds = self.inbox.buffered_bytes() + self.stream.buffered_bytes() + self.session.buffered() > 0;
        let rests = self.state == State::Serving && !holds && self.is_idle();
        if self.inbox.has_pinned() && !holds && self.is_settled() {
            self.inbox.forget_pinned();
        }
        if rests && self.rested == now {
            self.account.report_held(0);
            self.account.report_output(self.bytes_sent(), 0, 0);
            self.transferred.took = false;
            return;
        }
        self.rested = if rests && !self.pauses { now } else { u32::MAX };
        self.report_held();
        // Its own timers cover everything except closing.
        let phase =
            if self.state == State::Lingering { ConnectionPhase::Closing } else { ConnectionPhase::Busy };
        if phase != entry.phase() {
            entry.set_phase(phase, now);
        }
        let wake_tick = self.timeouts.observe(now, self.activity());
        entry.set_idle_since(self.timeouts.idle_since());
        if let Some(at) = self.timeouts.last_activity() {
            entry.record_activity(at);
        }
        self.transferred.took = false;
        let overdue = if self.draining { self.draining_since + DRAIN_TIMEOUT_TICKS } else { u32::MAX };
        let streams = if self.streams.is_empty() { u32::MAX } else { self.stream_check_tick.max(now + 1) };
        entry.wake_at(wake_tick.min(streams).min(if now < overdue { overdue } else { u32::MAX }));
        self.pauses = self.is_read_paused() || self.is_saturated();
        let wants_ticks = self.session.needs_ticks() || self.is_read_paused();
        if wants_ticks != self.wants_ticks {
            self.wants_ticks = wants_ticks;
            entry.set_wants_ticks(wants_ticks);
        }
    }

    /// Whether no call is left, and no reply, which may be a part of its request.
    fn is_settled(&self) -> bool {
        self.in_flight.is_empty()
            && self.streams.is_empty()
            && self.unwritten_bytes() == 0
            && self.session.unsent() == 0
    }

    fn activity(&self) -> Activity {
        let reads = self.state == State::Serving && !self.is_saturated() && !self.session.blocks_input();
        let unsent = self.session.unsent();
        let incomplete = if reads { self.session.incomplete(&self.inbox.bytes) } else { None };
        let incomplete = match incomplete {
            // The rest of the message, or the window update that its replies need, will not be read.
            _ if reads
                && self.is_read_paused()
                && (incomplete.is_some() || unsent > 0 || self.session.needs_ticks()) =>
            {
                Some(IncompletePart::Paused)
            }
            None => None,
            Some(Incomplete::Head) => Some(IncompletePart::Head),
            Some(Incomplete::Message) => Some(IncompletePart::Message),
        };
        let owes = !self.in_flight.is_empty();
        Activity {
            received: self.bytes_received(),
            written: self.transferred.written,
            incomplete,
            took: self.transferred.took,
            writing: self.unwritten_bytes() > 0,
            // Calls that wait for room for their responses wait for the peer to read.
            unsent: if self.in_flight.len() > self.account.calls_without_room() { 0 } else { unsent },
            half_closed: self.half_closed && owes,
            idle: self.is_idle(),
            // The answer to a PING would not be read, or is queued behind output that the peer has not read.
            busy: reads && !self.is_read_paused() && self.unwritten_bytes() == 0 && (owes || unsent > 0),
        }
    }

    /// Whether the connection is idle, so that it may be closed if it stays so.
    fn is_idle(&self) -> bool {
        match self.state {
            State::Lingering => false,
            _ if !self.in_flight.is_empty() || self.session.needs_ticks() => false,
            State::Serving if self.session.incomplete(&self.inbox.bytes).is_some() => false,
            _ if self.unwritten_bytes() > 0 || self.session.unsent() > 0 => false,
            _ if self.subscriptions.cannot_send_keepalive() => false,
            // The transport itself detects whether the peer is still alive.
            _ if !self.stream.signals_close() => false,
            // A connection without any successful call is not a client that waits for its next call.
            _ => S::RECONNECTS || self.calls.succeeded == 0,
        }
    }
}

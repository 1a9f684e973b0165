use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::{io, mem};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polyrpc_core::session::{Event, Handover, Server as Session, Verdict, ViolationKind};
use polyrpc_core::{Code, Credential, Outbox, Reply, Retry, Status, StreamId, Topic, Violation};

use super::arrival::Arrival;
use super::authentication::Judgement;
use super::clocks::{Clocks, Due, Incomplete, Observed};
use super::dispatch::{Dispatch, Found, Judged, Started, Stop};
use super::hooks::Renamed;
use super::in_flight::{Ended, InFlight, Running, Way};
use super::incidents::{Closing, Refusal};
use super::note::Note;
use super::open::{Entry, Order, Phase, Registration, Unasked};
use super::port::Port;
use super::streams::Streams;
use super::subscription::{self, Admission};
use super::tick::{TICK, ticks};
use super::topics::Subscriptions;
use super::unsendable;
use crate::budget::{self, Account};
use crate::call::{Accepted, Calls, ConnectionFacts, Ending, Site};
use crate::task::Inherited;
use crate::transport::{Inbox, Transport, scratch};

/// Drives one session over one socket.
///
/// One task does everything for a connection: it takes every message out of what one read brought, polls
/// each handler once in place, and writes all answers of the round at once. Only a handler that waits is kept
/// aside.
pub(super) struct Connection<'a, S: Session> {
    stream: &'a mut Transport,
    inbox: &'a mut Inbox,
    registration: &'a Registration,
    port: &'a Port,
    dispatch: Dispatch<'a>,
    session: S,
    out: Outbox,
    in_flight: InFlight<Owed<S::Ticket>>,
    streams: Streams,
    subscriptions: Subscriptions,
    state: State,
    /// How it ends, once it does.
    end: End,
    /// How many bytes of a peer that was told good-bye are still read.
    forbearance: usize,
    calls: Calls,
    /// The peer has closed its half.
    half_closed: bool,
    /// It was told to take on nothing new.
    draining: bool,
    /// The session has taken all it can from the inbox.
    starved: bool,
    round: Round,
    turn: Turn,
    /// What the connection holds of the server.
    account: Arc<Account>,
    clocks: Clocks,
    transferred: Transferred,
    /// Bytes of the sessions before, in and out.
    before: (u64, u64),
    /// Credentials that are being judged for something else than a call.
    judging: Option<Box<FuturesUnordered<JudgingFuture>>>,
    /// One was judged since the end of the input was last looked at.
    has_judged: bool,
    /// When streams are next looked at that do nothing, in ticks.
    look_at_streams: u32,
    /// Since when it takes on nothing new, in ticks.
    draining_since: u32,
    arrival: Arrival,
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
struct Owed<T> {
    ticket: T,
    /// Tells hooks of the end.
    note: Option<Box<Note>>,
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
pub(super) enum End {
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
struct Round {
    /// Calls taken since the inbox was last empty.
    taken: usize,
    /// About how many it were in the longest of the last rounds.
    usual: usize,
    /// How many calls a part has, as the session wishes it, and now.
    wished: usize,
    part: usize,
}

/// In a longer round the peer has enough to do meanwhile.
const FEW: usize = 128;

impl Round {
    fn new(part: usize) -> Self {
        Self { taken: 0, usual: 0, wished: part, part }
    }

    /// The inbox is empty.
    fn end(&mut self) {
        self.usual = self.taken.max(self.usual - self.usual.div_ceil(256));
        self.part = if self.usual <= FEW { self.wished } else { usize::MAX };
        self.taken = 0;
    }
}

/// What was read since others had their turn.
///
/// A peer that floods always has more to be read. The runtime's own budget would let its connection go on through
/// 8 MiB of small frames, tens of milliseconds in which no other connection of the thread is looked at.
#[derive(Debug, Default)]
struct Turn {
    reads: usize,
    bytes: usize,
    calls: usize,
    metadata: usize,
    /// Bytes of large replies.
    replied: usize,
    /// When the first calls had been taken.
    begun: Option<Instant>,
    /// It was so much that the rest of what was read is left for the next turn.
    is_heavy: bool,
    /// It is the turn of others.
    passed: bool,
}

impl Turn {
    fn note(&mut self, bytes: usize) {
        self.reads += 1;
        self.bytes += bytes;
    }

    /// What a call brought beside its message may be much in a few bytes, of which others have nothing.
    fn note_call(&mut self, metadata: usize) {
        self.calls += 1;
        self.metadata += metadata;
        if self.calls.is_multiple_of(TIMED) {
            self.read_clock();
        }
        self.is_heavy |= self.calls >= CALLS || self.metadata >= METADATA;
    }

    /// To open a call is more work than to answer a short one.
    fn note_open(&mut self, metadata: usize) {
        self.calls += OPENED - 1;
        self.note_call(metadata);
    }

    /// To make a large reply is work that the request does not show.
    fn note_reply(&mut self, length: usize) {
        self.replied += length;
        self.is_heavy |= self.replied >= REPLIED;
    }

    /// How long handlers take is known to none but the clock.
    fn read_clock(&mut self) {
        let now = Instant::now();
        let begun = *self.begun.get_or_insert(now);
        self.is_heavy |= now.saturating_duration_since(begun) > LONGEST;
    }

    /// The session says that it was much.
    fn tire(&mut self) {
        self.is_heavy = true;
    }

    /// Pending when it is the turn of others.
    fn poll_go_on(&mut self, entry: &Arc<Entry>) -> Poll<()> {
        if self.reads < READS && self.bytes < BYTES && !self.is_heavy {
            return Poll::Ready(());
        }
        if !self.passed {
            self.passed = true;
            entry.pass();
        }
        Poll::Pending
    }
}

/// More than a peer that waits for its answers needs; to go round by the runtime costs less than half a microsecond.
const READS: usize = 8;

/// Some hundred small messages.
const BYTES: usize = 32 << 10;

/// As many as an honest peer has under way, mostly.
const CALLS: usize = 256;

/// As how many calls one counts that is opened before its messages are here.
const OPENED: usize = 8;

/// After how many calls the clock is read. It costs more than a hundredth of the shortest call.
const TIMED: usize = 8;

/// How long calls are taken before others have their turn.
const LONGEST: Duration = Duration::from_micros(100);

/// About as much work as so many bytes.
const METADATA: usize = 2048;

/// As much as is copied in a quarter of a millisecond, into memory that is new.
const REPLIED: usize = 512 << 10;

/// How many bytes of a peer that broke the protocol are thrown away before its connection is closed with what is
/// unread. Enough for the reason to arrive at one that made a mistake; one that floods has megabytes on their way, and
/// to read them all would be its success.
const LINGERED: usize = 64 << 10;

/// What went over a connection.
#[derive(Debug, Default)]
struct Transferred {
    received: u64,
    written: u64,
    /// A message was taken whole since the connection last went to sleep.
    took: bool,
}

/// A credential that is being judged.
struct JudgingFuture {
    /// The request whose head brought it.
    head: Option<StreamId>,
    judging: Pin<Box<dyn Future<Output = JudgedLater> + Send>>,
}

impl Future for JudgingFuture {
    type Output = JudgedLater;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<JudgedLater> {
        self.judging.as_mut().poll(cx)
    }
}

/// What became of such a credential.
enum JudgedLater {
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

impl<'a, S: Session> Connection<'a, S> {
    /// Boxed: a connection takes the room that its own protocol needs, not that of the largest.
    pub(super) fn new(
        stream: &'a mut Transport,
        inbox: &'a mut Inbox,
        registration: &'a Registration,
        port: &'a Port,
        facts: Arc<ConnectionFacts>,
        session: S,
    ) -> Box<Self> {
        Box::new(Self {
            stream,
            inbox,
            registration,
            port,
            dispatch: Dispatch::new(port, registration, facts),
            session,
            out: Outbox::new(),
            in_flight: InFlight::new(registration.entry.account.clone()),
            streams: Streams::new(registration.entry.account.clone(), registration.tick()),
            subscriptions: Subscriptions::new(
                port.server.publisher.topics().clone(),
                registration.entry.clone(),
            ),
            state: State::Serving,
            end: End::Closed,
            forbearance: usize::MAX,
            calls: registration.entry.calls(),
            half_closed: false,
            draining: false,
            starved: false,
            round: Round::new(S::PART),
            turn: Turn::default(),
            account: registration.entry.account.clone(),
            clocks: Clocks::new(registration.limits(), registration.entry.opened(), registration.entry.id()),
            transferred: Transferred::default(),
            before: registration.entry.bytes(),
            judging: None,
            has_judged: false,
            look_at_streams: 0,
            draining_since: 0,
            arrival: Arrival::new(port.server.times_calls),
            heartbeats: 0,
            ticked: registration.tick(),
            is_ticking: false,
            rested: u32::MAX,
            pauses: false,
            paused: 0,
            wants_ticks: false,
        })
    }

    /// Serves until the connection ends or changes its protocol. Dropping it drops the handlers that wait.
    pub(super) async fn run(mut self: Box<Self>) -> End {
        let end = poll_fn(|cx| self.poll_drive(cx)).await.unwrap_or(End::Closed);
        self.dispatch.close();
        // Whatever the peer speaks next begins with a first byte.
        let entry = &self.registration.entry;
        entry.waits(Phase::Silent, self.registration.tick());
        entry.wake_at(u32::MAX);
        entry.wants_ticks(false);
        end
    }

    /// Goes on until everything waits: for the peer's bytes, for the peer to read, or for handlers.
    fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<End>> {
        self.registration.entry.wakes(cx.waker());
        self.out.lend(scratch::borrow());
        self.streams.wake();
        if !self.turn.passed || self.registration.entry.may_go_on() {
            self.turn = Turn::default();
        }
        self.tick();
        let end = loop {
            if self.obey() == Order::Close {
                if self.unwritten() > 0 {
                    // Else the system would keep what the peer does not read.
                    self.stream.break_off();
                }
                break Poll::Ready(Ok(End::Closed));
            }
            self.take_calls(cx);
            self.tell_heartbeats();
            self.answer_ended(cx);
            let unsent = self.port.server.limits.unsent;
            if self.streams.carry(&mut self.session, &mut self.out, unsent) && self.session.holds_back() {
                // What was held back may go on.
                self.starved = false;
            }
            self.push();
            match self.poll_onward(cx) {
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(Ok(Some(end))) => break Poll::Ready(Ok(end)),
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.streams.sleep(cx.waker());
        self.rest();
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
                Due::Close(cause) => return self.time_out(cause),
                Due::Drain => self.registration.entry.tell(Order::Drain),
                Due::Ping => {
                    let asked = self.session.ping(&mut self.out);
                    self.clocks.asked(now, asked);
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
            self.turn.tire();
        }
    }

    /// Ends the connection for a clock that has run out, and says so where the peer may still read it.
    #[cold]
    fn time_out(&mut self, cause: Closing) {
        let entry = &self.registration.entry;
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
        (0..self.in_flight.cut_off()).for_each(|_| self.calls.ended(false));
        self.give_up();
    }

    #[cold]
    fn end_idle_streams(&mut self, now: u32) {
        let allowed = self.port.server.limits.stream_idle_timeout.map_or(u32::MAX, ticks);
        let shortest = self.streams.shortest_idle(allowed);
        if shortest == u32::MAX {
            self.look_at_streams = u32::MAX;
            return;
        }
        self.look_at_streams = now + LOOK_AT_STREAMS.min(shortest.div_ceil(4)).max(1);
        for stream in self.streams.idle(allowed) {
            self.registration.entry.refused(Refusal::StreamIdle);
            self.in_flight.fail(stream, Status::deadline_exceeded("the stream was idle for too long"));
        }
    }

    fn obey(&mut self) -> Order {
        let order = self.registration.entry.ordered();
        match order {
            Order::Serve | Order::Close => {}
            Order::Retire => self.session.retire(),
            Order::Drain if self.draining => {}
            Order::Drain => self.drain(),
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
        self.starved = false;
        let end = self.round.taken.saturating_add(self.round.part);
        let over_share = self.is_over_share();
        let mut renamed = Renamed::default();
        while self.state == State::Serving
            && !self.saturated()
            && self.round.taken < end
            && !self.turn.is_heavy
        {
            match self.session.next_event(&mut self.inbox.bytes, &mut self.out) {
                Ok(Some(Event::Call(call, ticket))) => {
                    self.transferred.took = true;
                    self.calls.started += 1;
                    self.turn.note_call(call.head.metadata.len());
                    self.round.taken += 1;
                    let (streams, arrival) = (&mut self.streams, &mut self.arrival);
                    let found = Found { over_share, streams, arrival };
                    let (started, note) = self.dispatch.start::<S>(call, &ticket, &mut renamed, found, cx);
                    self.settle(started, Owed { ticket, note });
                }
                Ok(Some(Event::Open(call, ticket, stream))) => {
                    self.transferred.took = true;
                    self.calls.started += 1;
                    self.turn.note_open(call.head.metadata.len());
                    self.round.taken += 1;
                    let (streams, arrival) = (&mut self.streams, &mut self.arrival);
                    let found = Found { over_share, streams, arrival };
                    let (started, note) = self.dispatch.open::<S>(call, &ticket, &mut renamed, stream, found);
                    self.settle(started, Owed { ticket, note });
                }
                Ok(Some(Event::Message(stream, message))) => {
                    self.transferred.took = true;
                    if !self.streams.give(stream, message, &mut self.session, &mut self.out) {
                        self.in_flight.cancel(stream);
                    }
                }
                Ok(Some(Event::End(stream))) => self.streams.end(stream),
                Ok(Some(Event::Room(stream))) => self.streams.room(stream),
                Ok(Some(Event::Cancelled(stream))) => {
                    self.forget_judging(stream);
                    self.streams.cancel(stream);
                    self.in_flight.cancel(stream);
                }
                Ok(Some(Event::Head(head, stream))) => {
                    let judged = self.dispatch.judge_head(&head, over_share);
                    self.judge(stream, judged);
                }
                Ok(Some(Event::Alive)) => {}
                Ok(Some(Event::Pause)) => self.turn.tire(),
                Ok(Some(Event::Subscribe(topic))) => {
                    // It takes a lock that all connections share.
                    self.turn.note_open(0);
                    self.subscribe(topic);
                }
                Ok(Some(Event::Foreign)) => self.hand_over(End::Foreign),
                Ok(Some(Event::Connect)) => self.hand_over(End::Connect),
                Ok(Some(Event::Upgrade(upgrade))) => self.hand_over(End::Upgrade(upgrade)),
                Ok(Some(Event::WebSocket)) => self.hand_over(End::WebSocket),
                Ok(None) => {
                    self.starved = true;
                    self.round.end();
                    if let Some(refusals) = self.session.refused() {
                        self.registration.entry.refused_by_session(refusals);
                    }
                    if self.session.finished() {
                        self.finish();
                    }
                    return;
                }
                // Whatever the session had to say of it is in the outbox.
                Err(violation) => self.end_over(&violation),
            }
        }
    }

    #[cold]
    fn end_over(&mut self, violation: &Violation) {
        self.registration.entry.closed(match violation.kind() {
            ViolationKind::Malformed => Closing::Malformed,
            ViolationKind::TooLarge => Closing::TooLarge,
            ViolationKind::Flood => Closing::Flood,
        });
        if violation.kind() == ViolationKind::TooLarge {
            self.registration.entry.incidents.count(Refusal::TooLarge);
        }
        self.give_up();
    }

    /// Tells the session what becomes of a request whose head it has given out.
    fn judge(&mut self, stream: StreamId, judged: Judged) {
        match judged {
            Judged::Now(verdict) => {
                if self.session.judge(stream, verdict, &mut self.out) {
                    self.finish();
                }
            }
            Judged::Later(judging) => {
                let judging = Box::pin(async move { JudgedLater::Head(stream, judging.await) });
                self.judge_later(JudgingFuture { head: Some(stream), judging });
            }
            Judged::TooMany => self.end_guesses(),
        }
    }

    fn judge_later(&mut self, judging: JudgingFuture) {
        self.judging.get_or_insert_default().push(judging);
    }

    /// The judgement of this head is no longer awaited.
    fn forget_judging(&mut self, stream: StreamId) {
        if let Some(judging) = self.judging.as_mut().filter(|judging| !judging.is_empty()) {
            let all = std::mem::take(&mut **judging);
            judging.extend(all.into_iter().filter(|waiting| waiting.head != Some(stream)));
        }
    }

    fn is_judging(&self) -> bool {
        self.judging.as_ref().is_some_and(|judging| !judging.is_empty())
    }

    /// Takes up what was judged meanwhile.
    fn take_judged(&mut self, cx: &mut Context<'_>) {
        while let Some(judging) = self.judging.as_mut().filter(|judging| !judging.is_empty())
            && let Poll::Ready(Some(judged)) = judging.poll_next_unpin(cx)
        {
            self.starved = false;
            self.has_judged = true;
            match judged {
                JudgedLater::Head(stream, verdict) => self.judge(stream, Judged::Now(verdict)),
                JudgedLater::Subscription(topic, Ok(())) => self.pass_subscription(topic),
                JudgedLater::Admitted(topic) => self.add_subscription(topic),
                JudgedLater::Subscription(_, Err(_)) | JudgedLater::Unsubscribed => self.finish(),
            }
        }
    }

    /// The peer has brought too many wrong credentials.
    #[cold]
    fn end_guesses(&mut self) {
        self.registration.entry.closed(Closing::Credentials);
        self.give_up();
    }

    /// Whether the connection holds more than its share of the memory budget.
    fn is_over_share(&self) -> bool {
        self.account.bytes() > budget::FLOOR && self.account.over_share().is_some()
    }

    /// Tells hooks of what the session has answered by itself.
    fn tell_heartbeats(&mut self) {
        let hooks = &self.port.server.hooks;
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
        match self.dispatch.judge(&Credential::Connection(None)) {
            Judgement::Accepted => self.pass_subscription(topic),
            Judgement::Refused(_) => self.finish(),
            Judgement::Later(judging) => {
                let judging = Box::pin(async { JudgedLater::Subscription(topic, judging.await) });
                self.judge_later(JudgingFuture { head: None, judging });
            }
            Judgement::TooMany => self.end_guesses(),
        }
    }

    /// Takes a subscription through the layers, if there are any.
    fn pass_subscription(&mut self, topic: Topic) {
        let layers = &self.port.server.subscription_layers;
        if layers.is_empty() {
            return self.add_subscription(topic);
        }
        let Admission { handling, admitted } = subscription::pass(&topic, layers, self.dispatch.connection());
        let judging = Box::pin(async move {
            match admitted.await {
                Ok(()) => JudgedLater::Admitted(topic),
                Err(_) => JudgedLater::Unsubscribed,
            }
        });
        self.judge_later(JudgingFuture { head: None, judging });
        let judging = Box::pin(async move {
            handling.await;
            JudgedLater::Unsubscribed
        });
        self.judge_later(JudgingFuture { head: None, judging });
    }

    fn add_subscription(&mut self, topic: Topic) {
        if self.subscriptions.add(topic).is_err() {
            self.finish();
        }
    }

    fn settle(&mut self, started: Started, owed: Owed<S::Ticket>) {
        match started {
            Started::Ended(ending) => self.end_call(owed, ending),
            Started::Waiting { handling, site, deadline, inherited, way, bytes } => {
                let stream = S::stream(&owed.ticket);
                let running = Running::new(handling, site, owed, deadline, inherited, stream, way);
                self.in_flight.push(running.holding(bytes));
            }
            Started::Gathering { gathering, site, deadline, inherited, bytes } => {
                let stream = S::stream(&owed.ticket);
                let running = Running::gathering(gathering, site, owed, deadline, inherited, stream);
                self.in_flight.push(running.holding(bytes));
            }
            Started::Stopped(Stop::Failed(status)) => self.end_call(owed, Ending::failed(status)),
            Started::Stopped(Stop::Expired) => {
                self.registration.expired();
                self.end_call(owed, Ending::expired());
            }
            Started::Stopped(Stop::Refused(status)) => self.refuse(owed, status),
            Started::Stopped(Stop::Guesses) => {
                self.calls.ended(false);
                self.end_guesses();
            }
        }
    }

    #[cold]
    fn refuse(&mut self, Owed { ticket, mut note }: Owed<S::Ticket>, status: Status) {
        self.calls.ended(false);
        if let Some(note) = &mut note {
            note.failed(&status);
        }
        if self.session.refuse(ticket, status, &mut self.out) {
            self.finish();
        }
    }

    fn answer_ended(&mut self, cx: &mut Context<'_>) {
        self.take_judged(cx);
        while !self.turn.is_heavy
            && let Some(Ended { owed, ending, streamed, .. }) = self.in_flight.poll_ended(cx)
        {
            self.turn.note_call(0);
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
            self.starved = false;
        }
    }

    fn end_call(&mut self, Owed { ticket, mut note }: Owed<S::Ticket>, mut ending: Ending) {
        unsendable::refuse::<S>(&ticket, &mut ending);
        self.calls.ended(ending.succeeded());
        if let Some(note) = &mut note {
            note.ended(&ending);
        }
        // What a handler has pushed leaves before its answer, as from rpcx's servers.
        self.push();
        if let Ending::Reply(reply) = &mut ending {
            self.bound_reply(reply);
        }
        match ending {
            Ending::Reply(reply) => self.session.reply(ticket, reply, &mut self.out),
            Ending::Unauthenticated(status) => self.answer_refused(ticket, status),
            Ending::Corrupt(status) => self.answer_corrupt(ticket, status),
            Ending::Accept(reply, accepted) => self.accept(ticket, *reply, accepted),
            Ending::Finish { result, trailers } => {
                self.session.finish(ticket, result, trailers, &mut self.out);
            }
            Ending::CloseConnection => self.finish(),
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
        self.turn.note_reply(length);
        // The request may be gone by now.
        self.report_held();
        if length <= self.account.free() {
            return self.account.charge(length);
        }
        self.registration.entry.refused(Refusal::Memory);
        *reply = Reply::failure(budget::exhausted());
    }

    #[cold]
    fn answer_refused(&mut self, ticket: S::Ticket, status: Status) {
        if self.session.refuse(ticket, status, &mut self.out) {
            self.finish();
        }
    }

    #[cold]
    fn answer_corrupt(&mut self, ticket: S::Ticket, status: Status) {
        if status.code() == Code::ResourceExhausted && status.retry() == Retry::Never {
            self.registration.entry.refused(Refusal::TooLarge);
        }
        match S::corrupt(&ticket, status) {
            Ok(status) => self.session.reply(ticket, Reply::failure(status), &mut self.out),
            // In its protocol it ends the connection, and stays unanswered.
            Err(_) => self.give_up(),
        }
    }

    /// Answers a call whose handler accepted streams. Each goes on as a call of its own, unless the peer is not heard any
    /// more.
    fn accept(&mut self, mut ticket: S::Ticket, reply: Reply, accepted: Accepted) {
        let tickets = match self.state {
            State::Serving => self.session.accept(&mut ticket, &accepted.options),
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
            let owed = Owed { ticket, note: None };
            // What its call left to it ended with that.
            let inherited = Inherited::default();
            let site = Site::new(self.dispatch.connection().clone(), None);
            let running = Running::new(sending, site, owed, None, inherited, Some(stream), Way::Answered);
            self.in_flight.push(running);
        }
    }

    fn end_stream(&mut self, stream: StreamId, owed: Owed<S::Ticket>, mut ending: Ending) {
        let Owed { ticket, mut note } = owed;
        unsendable::refuse::<S>(&ticket, &mut ending);
        self.calls.ended(ending.succeeded());
        if let Some(note) = &mut note {
            note.ended(&ending);
        }
        let closes = matches!(ending, Ending::CloseConnection);
        match ending {
            Ending::Unauthenticated(status) => {
                self.streams.forget(stream, &mut self.session, &mut self.out);
                self.answer_refused(ticket, status);
            }
            Ending::Corrupt(status) => {
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
        if self.state != State::Serving || self.lags() {
            return;
        }
        let hooks = &self.port.server.hooks;
        for unasked in self.registration.entry.take_pushes() {
            if !hooks.is_empty() {
                hooks.pushed(&self.dispatch.caller().peer, &unasked.shown());
            }
            // That the protocol cannot push was said when the message was queued.
            let _ = match unasked {
                Unasked::Push(push) => self.session.push(push, &mut self.out),
                Unasked::Published(topic, data) => self.session.publish(&topic, data, &mut self.out),
            };
        }
    }

    /// Writes what there is to write, then reads what there is to read. `None`: there is more to do.
    fn poll_onward(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<End>>> {
        let waiting = self.unwritten();
        let written = self.stream.poll_flush(cx, &mut self.out)?.is_ready();
        self.transferred.written += waiting.saturating_sub(self.unwritten()) as u64;
        if self.streams.held() && !self.lags() {
            return Poll::Ready(Ok(None));
        }
        match self.state {
            State::Serving | State::Finishing if self.turn.is_heavy => self.poll_pass(),
            State::Serving if !self.starved && !self.saturated() => Poll::Ready(Ok(None)),
            State::Serving if self.starved && !self.has_enough() && !self.withholds() => {
                self.poll_fill(cx, written)
            }
            State::Serving if self.may_read_ahead() => self.poll_fill(cx, written),
            State::Serving => Poll::Pending,
            State::Finishing if written && self.in_flight.is_empty() => self.poll_finish(cx),
            State::Finishing => Poll::Pending,
            State::Lingering => self.poll_linger(cx),
        }
    }

    fn poll_pass(&mut self) -> Poll<io::Result<Option<End>>> {
        self.turn.poll_go_on(&self.registration.entry).map(|()| Ok(None))
    }

    /// Whether more has been read than is looked at before an answer is given. Some is read all the same, since that
    /// is how the end of the connection is seen.
    fn has_enough(&self) -> bool {
        self.inbox.bytes.len() >= AHEAD && self.session.holds_back()
    }

    /// Whether some is read though no more calls are taken: so the end of the connection is seen while handlers wait.
    fn may_read_ahead(&self) -> bool {
        self.saturated() && !self.lags() && !self.withholds() && self.inbox.bytes.len() < AHEAD
    }

    #[inline]
    fn poll_fill(&mut self, cx: &mut Context<'_>, written: bool) -> Poll<io::Result<Option<End>>> {
        ready!(self.turn.poll_go_on(&self.registration.entry));
        // What is read behind calls that wait for the answer to another is not to make these look younger.
        let waits = !self.inbox.bytes.is_empty() && (self.session.holds_back() || self.saturated());
        match self.inbox.poll_fill(self.stream, cx, self.session.wanted())? {
            // The peer sends no more but may still read: what it asked for is answered.
            Poll::Ready(0) => {
                self.half_closed = true;
                // A request whose credential is being judged, or has just been, may be whole already.
                if mem::take(&mut self.has_judged) {
                    return Poll::Ready(Ok(None));
                }
                if self.is_judging() {
                    return Poll::Pending;
                }
                self.finish();
            }
            Poll::Ready(n) => {
                self.turn.note(n);
                self.transferred.received += n as u64;
                if !waits {
                    self.arrival.note();
                }
            }
            Poll::Pending if self.registration.entry.has_pushes() && !self.lags() => {}
            Poll::Pending => {
                let settled = written && self.in_flight.is_empty() && !self.session.owes();
                let quiet = self.inbox.bytes.is_empty() && !self.session.expects();
                if !(self.draining && settled && (quiet || self.is_overdue())) {
                    return Poll::Pending;
                }
                self.finish();
            }
        }
        Poll::Ready(Ok(None))
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<End>>> {
        if !matches!(self.end, End::Closed) {
            return Poll::Ready(Ok(Some(mem::replace(&mut self.end, End::Closed))));
        }
        ready!(self.stream.poll_shutdown(cx))?;
        self.state = State::Lingering;
        Poll::Ready(Ok(None))
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<End>>> {
        self.inbox.bytes.clear();
        ready!(self.turn.poll_go_on(&self.registration.entry));
        let n = ready!(self.inbox.poll_fill(self.stream, cx, 0))?;
        self.turn.note(n);
        self.forbearance = self.forbearance.saturating_sub(n);
        Poll::Ready(Ok((n == 0 || self.forbearance == 0).then_some(End::Closed)))
    }

    /// Leaves the connection to another session, once all that is owed is written.
    fn hand_over(&mut self, end: End) {
        self.finish();
        self.end = end;
    }

    /// The peer broke the protocol: as [`finish`](Self::finish), but little of what it still sends is read.
    fn give_up(&mut self) {
        self.forbearance = LINGERED;
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
        let crowded = self.account.calls() >= self.port.server.limits.in_flight_per_connection;
        self.lags() || crowded && self.streams.is_empty() || self.dispatch.is_judging()
    }

    /// Whether nothing is read, since the connection holds more than its share of the memory budget. If most of what it
    /// holds waits for the peer's windows, it must read how these open; if most is subscriptions, it must read that the
    /// peer leaves. So it can hold at most as much again meanwhile.
    fn withholds(&self) -> bool {
        self.is_over_share() && self.session.unsent() + self.subscriptions.held() <= self.account.bytes() / 2
    }

    /// Whether a server that goes away has waited long enough for what the peer has begun.
    fn is_overdue(&self) -> bool {
        self.registration.tick().saturating_sub(self.draining_since) >= DRAIN_PATIENCE
    }

    /// Whether the peer has left too much unread.
    fn lags(&self) -> bool {
        self.unwritten() >= self.port.server.limits.unsent
    }

    /// Bytes that wait for the socket.
    fn unwritten(&self) -> usize {
        self.out.len() + self.stream.unwritten()
    }

    /// Gives back what a waiting connection does not need and notes what it waits for.
    fn rest(&mut self) {
        if !self.turn.passed {
            self.inbox.rest();
        }
        if let Some(buffer) = self.out.reclaim() {
            scratch::give_back(buffer);
        }
        let now = self.registration.tick();
        let entry = &self.registration.entry;
        entry.note(self.calls);
        let (received, sent) = self.before;
        entry.note_bytes(received + self.transferred.received, sent + self.transferred.written);
        // Mostly it has answered all again within a tick, and nothing is different.
        let holds = self.inbox.held() + self.stream.held() + self.session.buffered() > 0;
        let rests = self.state == State::Serving && !holds && self.is_idle();
        if rests && self.rested == now {
            self.account.settle(0);
            self.transferred.took = false;
            return;
        }
        self.rested = if rests && !self.pauses { now } else { u32::MAX };
        self.report_held();
        // Its own clocks judge all but how long it takes to close.
        let phase = if self.state == State::Lingering { Phase::Closing } else { Phase::Busy };
        if phase != entry.phase() {
            entry.waits(phase, now);
        }
        let alarm = self.clocks.observe(now, self.observed());
        entry.idles(self.clocks.idle_since());
        if let Some(at) = self.clocks.moved() {
            entry.moved(at);
        }
        self.transferred.took = false;
        let overdue = if self.draining { self.draining_since + DRAIN_PATIENCE } else { u32::MAX };
        let streams = if self.streams.is_empty() { u32::MAX } else { self.look_at_streams.max(now + 1) };
        entry.wake_at(alarm.min(streams).min(if now < overdue { overdue } else { u32::MAX }));
        self.pauses = self.withholds() || self.saturated();
        let wants_ticks = self.session.wants_ticks() || self.withholds();
        if wants_ticks != self.wants_ticks {
            self.wants_ticks = wants_ticks;
            entry.wants_ticks(wants_ticks);
        }
    }

    /// Reports what the connection holds. One that holds more than it may ends.
    fn report_held(&self) {
        let within = self.session.buffered() + self.session.unsent();
        let held = self.inbox.held() + self.stream.held() + self.out.len() + within;
        self.account.settle(held);
        if self.account.exceeds_quota() {
            self.registration.entry.close(Closing::Memory);
        }
    }

    fn observed(&self) -> Observed {
        let reads = self.state == State::Serving && !self.saturated() && !self.session.holds_back();
        let unsent = self.session.unsent();
        let mid_message = reads && self.session.mid_message(&self.inbox.bytes);
        let incomplete = match () {
            // What it would bring, or the window without which its answers cannot leave, will not be read.
            () if reads && self.withholds() && (mid_message || unsent > 0 || self.session.wants_ticks()) => {
                Some(Incomplete::Withheld)
            }
            () if !mid_message => None,
            () if self.session.in_head() => Some(Incomplete::Head),
            () => Some(Incomplete::Message),
        };
        let owes = !self.in_flight.is_empty();
        Observed {
            received: self.transferred.received + self.stream.received_beside(),
            written: self.transferred.written,
            incomplete,
            took: self.transferred.took,
            writing: self.unwritten() > 0,
            unsent: if owes { 0 } else { unsent },
            half_closed: self.half_closed && owes,
            idle: self.is_idle(),
            // Its answer to a PING would not be read, or waits behind what it has not read itself.
            busy: reads && !self.withholds() && self.unwritten() == 0 && (owes || unsent > 0),
        }
    }

    /// Whether nothing is under way, so that the connection may be closed if that lasts.
    fn is_idle(&self) -> bool {
        match self.state {
            State::Lingering => false,
            _ if !self.in_flight.is_empty() || self.session.wants_ticks() => false,
            State::Serving if self.session.mid_message(&self.inbox.bytes) => false,
            _ if self.unwritten() > 0 || self.session.unsent() > 0 => false,
            _ if self.subscriptions.expect_silence() => false,
            // The transport itself notices whether the peer is still there.
            _ if !self.stream.tells_end() => false,
            // One that never succeeded is no client that waits for its next call.
            _ => S::RECONNECTS || self.calls.succeeded == 0,
        }
    }
}

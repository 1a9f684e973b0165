//! The seam between a protocol and whoever moves its bytes.
//!
//! A session is the memory of one connection: what was negotiated, which answers are owed. It is driven
//! from outside:
//!
//! * bytes that arrived are appended to the inbox, then [`Server::next_event`] (or
//!   [`Client::next_event`]) is called until it returns `None`, which means "not enough bytes";
//! * commands ([`Server::reply`], [`Client::send`]) append bytes to the [`Outbox`];
//! * whoever drives it writes the outbox, as rarely as he likes.
//!
//! Pulling events gives backpressure for free: who does not pull does not read.
//!
//! A unary call is one event and one command each way. Only a call whose messages come, or leave, one by one
//! pays for being a stream:
//!
//! ```text
//!              server                                            client
//!   Open ─▶ Message* ─▶ End        what the caller sends        open ─▶ message* ─▶ end
//!   begin ─▶ message* ─▶ finish    what it gets                 Head ─▶ Message* ─▶ Reply
//! ```
//!
//! Both halves go on independently, and either side may end the whole call early.
//!
//! A unary call may also bring streams beside it (brpc): the server [accepts](Server::accept_streams) them with its reply, and
//! each of them goes on by itself, [`Message`](ServerEvent::Message) by message, until a side ends it.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::{
    Call, CallId, Carrier, Credential, Format, Head, Message, Metadata, Outbox, Push, Reply, Status,
    StreamId, Topic,
};

/// The server's side of a connection.
pub trait Server {
    /// What must come back to answer a call. It is consumed by the answer, so that no call is answered
    /// twice; dropping it leaves the call unanswered.
    type Ticket: Send + 'static;

    /// How many answers are worth a write of their own while more calls are at hand: with fewer, system calls and the
    /// waking of the peer cost more than it gains by having something to do meanwhile.
    const PART: usize = 16;

    /// Whether a client whose idle connection was ended makes another one for its next call.
    const RECONNECTS: bool = true;

    /// Takes the next event out of `inbox`, or `None` when it needs more bytes.
    ///
    /// What the protocol answers by itself (heartbeats, malformed calls) goes into `out` without an event.
    ///
    /// # Errors
    ///
    /// A [`Violation`] ends the connection: what is in `out` may still be written, nothing more is read.
    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Self::Ticket>>, Violation>;

    /// Answers a call. Calls may be answered in any order; a protocol that must keep the order keeps it here.
    fn reply(&mut self, ticket: Self::Ticket, reply: Reply, out: &mut Outbox);

    /// The failure of a call whose message its method cannot read, in the protocol's own words where it has some.
    fn decode_failure(status: Status) -> Status {
        status
    }

    /// The same where one connection carries calls of several kinds, of which the ticket tells one.
    fn decode_failure_of(_ticket: &Self::Ticket) -> fn(Status) -> Status {
        Self::decode_failure
    }

    /// Whether a call without a message calls with the default one, also where its format writes none as no bytes.
    fn may_be_empty(_ticket: &Self::Ticket) -> bool {
        false
    }

    /// The failure of a call whose message cannot be decompressed, in the protocol's own words where it has some.
    ///
    /// # Errors
    ///
    /// A [`Violation`] where such a message ends the connection instead.
    fn decompression_failure(_ticket: &Self::Ticket, status: Status) -> Result<Status, Violation> {
        Ok(Self::decode_failure(status))
    }

    /// The failure of a call to something that does not exist, in the protocol's own words and numbers.
    fn not_found_failure(call: &Call<'_>, missing: NotFound) -> Status;

    /// The same where one connection carries calls of several kinds, of which the ticket tells one.
    fn not_found_failure_of(_ticket: &Self::Ticket, call: &Call<'_>, missing: NotFound) -> Status {
        Self::not_found_failure(call, missing)
    }

    /// How the answer to this call carries metadata and trailers: the driver makes a failure of one that
    /// [cannot travel](Carrier::check).
    fn carrier(_ticket: &Self::Ticket) -> Carrier {
        Carrier::Any
    }

    /// The same for an answer of several messages that begins.
    fn carrier_of(&self, _stream: StreamId) -> Carrier {
        Carrier::Any
    }

    /// How an answer is written when the handler does not choose: as the request was, unless the protocol
    /// says otherwise.
    fn reply_format(request: Format) -> Format {
        request
    }

    /// Answers a call whose credential was refused, in the form the protocol has for it.
    /// Returns whether the connection must be closed once `out` is written.
    fn reject(&mut self, ticket: Self::Ticket, status: Status, out: &mut Outbox) -> bool;

    /// The name under which later events speak of this call; `None` in a protocol that never does.
    fn stream(_ticket: &Self::Ticket) -> Option<StreamId> {
        None
    }

    /// Whether it is a request of HTTP that is no call: its metadata are all its fields, with `:method`, `:path` and
    /// `:authority` among them, its messages the pieces of its body; `:status` stands in the head of its answer.
    fn is_exchange(_ticket: &Self::Ticket) -> bool {
        false
    }

    /// The streams that the caller offers beside the call.
    fn offered_streams(_ticket: &Self::Ticket) -> Option<OfferedStreams> {
        None
    }

    /// Accepts what the caller offers, with a reply that must follow at once. Each stream has a ticket of its own, by
    /// which it is [finished](Self::finish).
    fn accept_streams(&mut self, _ticket: &mut Self::Ticket, _options: &StreamOptions) -> Vec<Self::Ticket> {
        Vec::new()
    }

    /// Begins an answer of several messages: what travels before the first, and how each is written and
    /// compressed. Without it the first message begins the answer with an empty head.
    fn start_response(&mut self, _stream: StreamId, _head: Head, _out: &mut Outbox) {}

    /// Sends one message of an answer, encoded and not compressed yet.
    ///
    /// It is taken whatever [`has_room`](Self::has_room) says; what the peer does not take yet waits in the session.
    fn message(&mut self, _stream: StreamId, _message: Bytes, _out: &mut Outbox) {}

    /// Ends an answer of several messages, with what travels behind the last.
    fn finish(
        &mut self,
        _ticket: Self::Ticket,
        _result: Result<(), Status>,
        _trailers: Metadata,
        _out: &mut Outbox,
    ) {
    }

    /// Whether the peer takes more of this answer now. If not, [`ServerEvent::Room`] says when it does.
    fn has_room(&self, _stream: StreamId) -> bool {
        true
    }

    /// The handler has taken so many bytes of messages: the peer may send as many again.
    fn consumed(&mut self, _stream: StreamId, _bytes: usize, _out: &mut Outbox) {}

    /// This side gives a stream up, in whatever state it is.
    fn reset(&mut self, _stream: StreamId, _out: &mut Outbox) {}

    /// Whether answers that were given to the session still wait here for room: a connection that is to be closed
    /// goes on reading until there is some.
    fn has_pending_output(&self) -> bool {
        false
    }

    /// Whether what lies in the inbox is not looked at until an answer is given: there is no use in reading much
    /// more.
    fn blocks_input(&self) -> bool {
        false
    }

    /// Tells the session the time, as the duration since a moment that never changes. Time-outs that the session keeps
    /// by itself are applied here; what follows from them comes with the next events.
    ///
    /// The driver calls it before it asks for events, and at least each quarter of a second while the session
    /// [wants it](Self::needs_ticks). `true`: more is overdue at the same time than was applied; the driver gives others
    /// their turn and then calls again.
    fn tick(&mut self, _now: Duration, _out: &mut Outbox) -> bool {
        false
    }

    /// Whether a time-out runs in the session, so that it must be [told the time](Self::tick) though nothing arrives.
    fn needs_ticks(&self) -> bool {
        false
    }

    /// Decides about the request whose head was given out by [`ServerEvent::Head`]: whether its body is read. Any other verdict
    /// answers the request. Returns whether the connection must be closed once `out` is written.
    fn apply_verdict(&mut self, _stream: StreamId, _verdict: Verdict, _out: &mut Outbox) -> bool {
        false
    }

    /// Bytes of requests that the session holds: of messages that are incomplete, or were not asked for yet.
    fn buffered(&self) -> usize {
        0
    }

    /// Bytes of answers that the session holds, since the peer's windows are closed or earlier answers must leave first.
    fn unsent(&self) -> usize {
        0
    }

    /// Asks the peer whether it is there; its answer is [`ServerEvent::Alive`]. Returns `false` where the protocol has no such
    /// question.
    fn ping(&mut self, _out: &mut Outbox) -> bool {
        false
    }

    /// Tells the peer why its connection will be closed at once, where the protocol can say so.
    fn abort(&mut self, _status: &Status, _out: &mut Outbox) {}

    /// Sends a message that no call asked for.
    ///
    /// # Errors
    ///
    /// [`Unimplemented`](crate::Code::Unimplemented) where the protocol has no such thing.
    fn push(&mut self, _push: Push, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol cannot push"))
    }

    /// Sends what is published under the name of a topic to which the peer has [subscribed](ServerEvent::Subscribe).
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    fn publish(&mut self, _topic: &[u8], _data: Bytes, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no topics"))
    }

    /// How many bytes the inbox must hold in all before the next event can come; 0 when unknown.
    /// A hint for sizing reads: a frame's length is known here long before its last byte arrives, and it
    /// has been checked against [`Limits::message`].
    fn bytes_needed(&self) -> usize;

    /// Whether an event, once begun, is still incomplete: its header is here, its end is not.
    /// Lets the driver tell a slow peer from an idle one.
    fn is_mid_message(&self, inbox: &BytesMut) -> bool {
        !inbox.is_empty()
    }

    /// Whether what is incomplete is a head of unknown length (HTTP/1), which must end within a time of its own.
    fn is_in_head(&self) -> bool {
        false
    }

    /// How many times the peer asked whether it is heard, and was answered.
    fn heartbeats(&self) -> u64 {
        0
    }

    /// What was refused here without an event since this was asked last; `None`: nothing.
    ///
    /// The driver asks when the session needs more bytes, and counts it: whoever runs the server learns of it only so.
    fn take_refusals(&mut self) -> Option<Refusals> {
        None
    }

    /// The server will go away soon, and takes calls until then: answers tell the peer to make its next calls on another
    /// connection where the protocol can say so of an answer (`Connection: close`).
    fn go_away(&mut self) {}

    /// The server is going away: calls that arrive from now on are refused in the protocol's own words,
    /// and answers tell the peer not to come again where the protocol can say so.
    fn drain(&mut self, out: &mut Outbox);

    /// Whether a peer that was told so may still bring calls which it sent before it heard it, or the rest of such a
    /// call: a server that goes away waits for them.
    fn expects(&self) -> bool {
        false
    }

    /// Whether the connection should be closed once everything is answered and written
    /// (`Connection: close`, a protocol error already answered).
    fn finished(&self) -> bool {
        false
    }
}

/// The client's side of a connection.
pub trait Client {
    /// Appends a call to `out`. `id` comes back with the reply; it must not be in use on this connection.
    ///
    /// # Errors
    ///
    /// A [`Status`] when the protocol cannot express the call; nothing was appended then.
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status>;

    /// Appends the beginning of a call whose messages follow one by one; the call's body is empty.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); [`Unimplemented`](crate::Code::Unimplemented) where the protocol has no streams.
    fn open(&mut self, _id: CallId, _call: Call<'_>, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no streams"))
    }

    /// Appends a whole call with streams beside it, each named like an opened call of its own. They go on when the call
    /// was answered, and have ended by then if they were not accepted.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    fn send_beside(
        &mut self,
        _id: CallId,
        _call: Call<'_>,
        _streams: &[CallId],
        _options: &StreamOptions,
        _out: &mut Outbox,
    ) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no streams beside a call"))
    }

    /// Appends a subscription: what is published under `key` and `token` comes as [`ClientEvent::Message`]s of this call
    /// from now on, until it is cancelled.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); [`Unimplemented`](crate::Code::Unimplemented) where the protocol has no topics.
    fn subscribe(&mut self, _id: CallId, _key: &str, _token: &str, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no topics"))
    }

    /// Sends one message of an opened call, encoded and not compressed yet.
    ///
    /// It is taken whatever [`has_room`](Self::has_room) says; what the peer does not take yet waits in the session.
    fn message(&mut self, _id: CallId, _message: Bytes, _out: &mut Outbox) {}

    /// No more messages follow on an opened call; its answer may still go on. Nothing is said where the protocol
    /// [cannot](Self::half_closes).
    fn end(&mut self, _id: CallId, _out: &mut Outbox) {}

    /// Whether the protocol can say that one direction of an opened call has [ended](Self::end) while the other goes on.
    fn half_closes(&self) -> bool {
        false
    }

    /// Ends an opened call in order, behind the messages that were sent: where both directions end together, both.
    /// Its [reply](ClientEvent::Reply) says that the peer knows.
    fn close(&mut self, id: CallId, out: &mut Outbox) {
        self.end(id, out);
    }

    /// Whether the peer takes more of this call now. If not, [`ClientEvent::Room`] says when it does.
    fn has_room(&self, _id: CallId) -> bool {
        true
    }

    /// Whether the peer takes messages of this call at all.
    fn writable(&self, _id: CallId) -> bool {
        true
    }

    /// The caller has taken so many bytes of messages: the peer may send as many again.
    fn consumed(&mut self, _id: CallId, _bytes: usize, _out: &mut Outbox) {}

    /// Whether what lies in the inbox is not looked at until messages were [taken](Self::consumed), in a protocol that
    /// cannot tell the peer to wait: there is no use in reading more.
    fn blocks_input(&self) -> bool {
        false
    }

    /// Takes the next event out of `inbox`, or `None` when it needs more bytes.
    ///
    /// # Errors
    ///
    /// A [`Violation`] ends the connection and fails every call on it.
    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation>;

    /// The caller no longer waits for this call. A later reply to it is dropped by whoever keeps the ids;
    /// a protocol with a word for it says it here.
    fn cancel(&mut self, _id: CallId, _out: &mut Outbox) {}

    /// How many bytes the inbox must hold in all before the next event can come; 0 when unknown.
    fn bytes_needed(&self) -> usize;

    /// Whether calls that were given to the session still wait here, for a handshake: a connection that is to be closed
    /// stays open until they have left.
    fn has_pending_output(&self) -> bool {
        false
    }

    /// How many calls may be outstanding at once: 1 for a protocol without correlation ids.
    fn concurrency(&self) -> usize {
        usize::MAX
    }

    /// Whether a further call may be sent, or the connection is about to end (`Connection: close`).
    fn reusable(&self) -> bool {
        true
    }

    /// The peer closed its half: a reply that is delimited by the end of the connection is complete now.
    fn end_of_stream(&mut self, _inbox: &mut BytesMut) -> Option<ClientEvent> {
        None
    }

    /// What else may be wrong, where the server closes the connection or breaks the protocol before it has understood
    /// anything: a protocol that has dialects names the others.
    fn failure_hint(&self) -> Option<String> {
        None
    }

    /// Appends the protocol's own "are you there?"; its answer comes as [`ClientEvent::Alive`].
    /// Returns `false` where none comes: the protocol has no such word, nobody answers it, or the peer would not bear
    /// it now.
    fn heartbeat(&mut self, _out: &mut Outbox) -> bool {
        false
    }
}

/// What a server finds in its inbox.
#[derive(Debug)]
pub enum ServerEvent<'s, T> {
    /// The head of a request whose body has not arrived. The session reads on only when [`Server::apply_verdict`] was called
    /// for it.
    Head(RequestHead<'s>, StreamId),
    /// A whole unary request. Names are borrowed from the session; the body is shared, not copied.
    Call(Call<'s>, T),
    /// A request of which more follows: messages, then [`End`](Self::End). Whether it is a unary one that comes
    /// in pieces or a stream, only the method knows.
    Open(Call<'s>, T, StreamId),
    /// One message of an open request.
    Message(StreamId, Message),
    /// No more messages follow.
    End(StreamId),
    /// The peer takes more of an answer again.
    Room(StreamId),
    /// The peer no longer waits for this call: its answer would be thrown away.
    Cancelled(StreamId),
    /// The peer has answered a [`ping`](Server::ping).
    Alive,
    /// Much was done for this peer, though it may not have led to anything: others should have their turn. More may be
    /// in the inbox.
    Pause,
    /// The peer wants to be pushed what is published under this topic from now on.
    Subscribe(Topic),
    /// The rest of the inbox is not of this protocol: answer what is owed, then detect anew.
    /// The peers allow one connection to change its protocol between messages
    /// (brpc `input_messenger.cpp`).
    Foreign,
    /// The peer asked by HTTP's `CONNECT` for another protocol and was granted it: detect anew. What was agreed on
    /// before, as by TLS's handshake, was of HTTP.
    Connect,
    /// The connection goes on in HTTP/2, whose first request is here already: the session of HTTP/2 takes it over.
    Upgrade(Handover),
    /// The connection goes on as a WebSocket: the protocol within its messages is detected next.
    WebSocket,
}

/// State that a session passes to the session of another protocol, which goes on with the connection. Only these two
/// know its type.
pub struct Handover(Box<dyn Any + Send>);

impl Handover {
    /// Wraps the state.
    pub fn new(state: impl Any + Send) -> Self {
        Self(Box::new(state))
    }

    /// The state, if it is of this type.
    pub fn downcast<T: Any>(self) -> Option<T> {
        self.0.downcast().ok().map(|state| *state)
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handover")
    }
}

/// What is known of a request before its body is here.
#[derive(Debug)]
pub struct RequestHead<'s> {
    /// Service and method; `None` where only the body names them (JSON-RPC).
    pub target: Option<(&'s str, &'s str)>,
    /// Credential of the caller.
    pub credential: Credential,
}

/// What becomes of a request by its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its body is read. Its call is given out as [authenticated](Call::authenticated).
    Accepted,
    /// Its credential was refused.
    Unauthenticated(Status),
    /// It cannot be served now.
    Refused(Status),
    /// It names something that does not exist.
    Missing(NotFound),
}

/// How often a session has refused something by itself, by cause: no call came of it, or its call was given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// It is larger than [`Limits`] allow: a message, a body, a head.
    pub too_large: u64,
    /// It names nothing that could be called.
    pub unknown: u64,
    /// Its content type, its coding or its verb is none of those that are understood here.
    pub unsupported: u64,
}

/// Why a session refuses something by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// See [`Refusals::too_large`].
    TooLarge,
    /// See [`Refusals::unknown`].
    Unknown,
    /// See [`Refusals::unsupported`].
    Unsupported,
}

/// What a session has refused and not told of yet. It takes one word where that is nothing.
#[derive(Debug, Default)]
pub struct UnreportedRefusals(Option<Box<Refusals>>);

impl UnreportedRefusals {
    /// Counts one more.
    #[cold]
    pub fn record(&mut self, refused: RefusalCause) {
        let refusals = self.0.get_or_insert_default();
        match refused {
            RefusalCause::TooLarge => refusals.too_large += 1,
            RefusalCause::Unknown => refusals.unknown += 1,
            RefusalCause::Unsupported => refusals.unsupported += 1,
        }
    }

    /// What was counted since the last call, for [`Server::take_refusals`].
    pub fn take(&mut self) -> Option<Refusals> {
        self.0.take().map(|refusals| *refusals)
    }
}

/// Streams that a caller offers beside a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedStreams {
    /// The name that the first will have; those of the others follow it.
    pub first: StreamId,
    /// How many there are; none if the connection has no place for them.
    pub streams: usize,
    /// The caller takes messages.
    pub writable: bool,
}

/// How this side makes the streams that are attached to a call. The names are those of brpc's `StreamOptions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Bytes of messages that may be sent and not taken yet; the message that goes beyond is the last. 0: any number,
    /// and the peer need not tell what it takes. 2 MiB.
    pub max_buf_size: usize,
    /// The same at the beginning, and while the streams of the connection have too much under way, where
    /// `StreamLimits::unconsumed_in_all` is set; 0: none. 1 MiB.
    pub min_buf_size: usize,
    /// Whether this side takes messages. If not, the peer is told to send none.
    pub receives: bool,
    /// How long no message may come or leave before this side ends the stream; `None`: as long as the connection's limits
    /// allow. It is each side's own and never on the wire, so whoever drives the session keeps it; a server rounds it up
    /// to its ticks. brpc's `idle_timeout_ms` only tells its user.
    pub idle_timeout: Option<Duration>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { max_buf_size: 2 << 20, min_buf_size: 1 << 20, receives: true, idle_timeout: None }
    }
}

/// What a call names that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is no such service.
    Service,
    /// The service has no such method.
    Method,
}

/// What a client finds in its inbox.
#[derive(Debug)]
pub enum ClientEvent {
    /// A call was answered, or an opened one has ended: with an empty message, or why it failed.
    Reply(CallId, Reply),
    /// The answer to an opened call has begun: what travels before its messages.
    Head(CallId, Head),
    /// One message of the answer to an opened call.
    Message(CallId, Message),
    /// The peer takes more of an opened call again.
    Room(CallId),
    /// A message that no call asked for.
    Push(Push),
    /// The peer answered a heartbeat.
    Alive,
    /// The peer wants fewer heartbeats, and goes away for that.
    TooManyHeartbeats,
    /// The peer is going away: send it nothing more, wait for what is owed.
    GoAway,
}

/// What a connection will accept. Every length a peer announces meets one of these before memory is
/// set aside for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message on the wire, headers included. 64 MiB, as brpc's `max_body_size`.
    pub message: usize,
    /// Bytes of one message after decompression. 64 MiB.
    pub decompressed: usize,
    /// Bytes of a message's header part where it has no length of its own (an HTTP head). 64 KiB.
    pub header: usize,
    /// How long a message may take, where a session has several incomplete ones at a time (HTTP/2).
    pub pace: SlowPeerGuard,
}

/// How long an incomplete message may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowPeerGuard {
    /// How often it is judged whether enough bytes came. 10 s.
    pub interval: Duration,
    /// Bytes a second that must come, as the mean over an interval. 1 KiB.
    pub rate: usize,
    /// How long a message may take from its first byte to its last. 2 minutes.
    pub whole: Duration,
}

impl SlowPeerGuard {
    /// The usual one.
    pub const DEFAULT: Self =
        Self { interval: Duration::from_secs(10), rate: 1 << 10, whole: Duration::from_secs(120) };
}

impl Default for SlowPeerGuard {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 64 << 20, decompressed: 64 << 20, header: 64 << 10, pace: SlowPeerGuard::default() }
    }
}

/// Why a connection cannot go on: its bytes are not what the protocol allows, and no answer to a single
/// call would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    reason: String,
    kind: ViolationKind,
}

/// What kind of violation ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// Bytes that the protocol does not allow.
    Malformed,
    /// A message, or a head, above its limit.
    TooLarge,
    /// More work than an honest peer causes: resets, control frames, empty frames.
    Flood,
}

impl Violation {
    /// A violation with its reason, in lower case and without a full stop.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind: ViolationKind::Malformed }
    }

    /// Something above a limit, with the reason that [`new`](Self::new) takes.
    #[cold]
    pub fn too_large(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind: ViolationKind::TooLarge }
    }

    /// A message that is longer than the limit, in bytes.
    #[cold]
    pub fn message_too_large(length: usize, limit: usize) -> Self {
        Self::too_large(format!("message is too long: {length} bytes where {limit} are allowed"))
    }

    /// A body, with all that a frame holds behind its header, that is longer than the limit, in bytes.
    #[cold]
    pub fn body_too_large(length: usize, limit: usize) -> Self {
        Self::too_large(format!("a body of {length} bytes exceeds the limit of {limit}"))
    }

    /// The same violation, as one of this kind.
    #[must_use]
    pub fn of_kind(self, kind: ViolationKind) -> Self {
        Self { kind, ..self }
    }

    /// What kind of violation it is.
    pub fn kind(&self) -> ViolationKind {
        self.kind
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Violation {}

//! Interface between a protocol and its driver, which moves its bytes.
//!
//! A session holds the state of one connection: what was negotiated, which calls await a reply. It is driven from
//! outside:
//!
//! * received bytes are appended to the inbox, then [`Server::next_event`] (or [`Client::next_event`]) is called until
//!   it returns `None`, which means "not enough bytes";
//! * commands ([`Server::reply`], [`Client::send`]) append bytes to the [`Outbox`];
//! * the driver writes the outbox, whenever it chooses.
//!
//! Pulling events provides backpressure: a driver that stops pulling stops reading.
//!
//! A unary call is one event and one command on each side. Only streaming calls pay for streaming:
//!
//! ```text
//!              server                                            client
//!   Open ─▶ Message* ─▶ End        request                     open ─▶ message* ─▶ end
//!   begin ─▶ message* ─▶ finish    response                    Head ─▶ Message* ─▶ Reply
//! ```
//!
//! Both directions are independent, and either side may end the whole call early.
//!
//! A unary call may also have attached streams (brpc): the server [accepts](Server::accept_streams) them with its
//! reply, and each of them continues by itself, [`Message`](ServerEvent::Message) by message, until one side ends it.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::{
    Call, CallId, Carrier, Credential, Format, Head, Message, Metadata, Outbox, Push, Reply, Status,
    StreamId, Topic,
};

/// Server side of a connection.
pub trait Server {
    /// Data needed to answer a call. It is consumed by the reply, so that no call is answered twice; dropping it leaves
    /// the call unanswered.
    type Ticket: Send + 'static;

    /// Minimum number of replies to write while more calls are pending: with fewer, system calls and waking the peer
    /// cost more than is gained by keeping it busy.
    const PART: usize = 16;

    /// Whether a client reconnects for its next call after its idle connection was closed.
    const RECONNECTS: bool = true;

    /// Takes the next event out of `inbox`, or returns `None` if more bytes are needed.
    ///
    /// Replies of the protocol itself (heartbeats, malformed calls) are appended to `out` without an event.
    ///
    /// # Errors
    ///
    /// A [`Violation`] ends the connection: `out` may still be written, but nothing more is read.
    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Self::Ticket>>, Violation>;

    /// Answers a call. Calls may be answered in any order; the session restores the order if the protocol requires it.
    fn reply(&mut self, ticket: Self::Ticket, reply: Reply, out: &mut Outbox);

    /// Maps the failure of a call whose message its method cannot decode to the protocol's own one, if there is one.
    fn decode_failure(status: Status) -> Status {
        status
    }

    /// As [`decode_failure`](Self::decode_failure), for connections with several kinds of calls, which the ticket
    /// distinguishes.
    fn decode_failure_of(_ticket: &Self::Ticket) -> fn(Status) -> Status {
        Self::decode_failure
    }

    /// Whether a call without a message means the default message, even if the format encodes that differently.
    fn may_be_empty(_ticket: &Self::Ticket) -> bool {
        false
    }

    /// Maps the failure of a call whose message cannot be decompressed to the protocol's own one, if there is one.
    ///
    /// # Errors
    ///
    /// A [`Violation`] if such a message ends the connection instead.
    fn decompression_failure(_ticket: &Self::Ticket, status: Status) -> Result<Status, Violation> {
        Ok(Self::decode_failure(status))
    }

    /// Returns the failure of a call to a service or method that does not exist, with the protocol's own text and code.
    fn not_found_failure(call: &Call<'_>, missing: NotFound) -> Status;

    /// As [`not_found_failure`](Self::not_found_failure), for connections with several kinds of calls, which the ticket
    /// distinguishes.
    fn not_found_failure_of(_ticket: &Self::Ticket, call: &Call<'_>, missing: NotFound) -> Status {
        Self::not_found_failure(call, missing)
    }

    /// Returns how the reply to this call carries metadata and trailers: the driver replaces a reply whose metadata
    /// [cannot be sent](Carrier::check) by a failure.
    fn carrier(_ticket: &Self::Ticket) -> Carrier {
        Carrier::Any
    }

    /// As [`carrier`](Self::carrier), for a streamed response that is about to start.
    fn carrier_of(&self, _stream: StreamId) -> Carrier {
        Carrier::Any
    }

    /// Returns the format of a reply if the handler does not select one: by default that of the request.
    fn reply_format(request: Format) -> Format {
        request
    }

    /// Answers a call whose credential was rejected, in the protocol's own form. Returns whether the connection must be
    /// closed after `out` is written.
    fn reject(&mut self, ticket: Self::Ticket, status: Status, out: &mut Outbox) -> bool;

    /// Returns the identifier of this call in later events; `None` if the protocol has no such events.
    fn stream(_ticket: &Self::Ticket) -> Option<StreamId> {
        None
    }

    /// Whether it is an HTTP request other than a call: its metadata are all its fields, including `:method`, `:path`
    /// and `:authority`; its messages are the pieces of its body; the head of its response contains `:status`.
    fn is_exchange(_ticket: &Self::Ticket) -> bool {
        false
    }

    /// Returns the streams that the caller offers with the call.
    fn offered_streams(_ticket: &Self::Ticket) -> Option<OfferedStreams> {
        None
    }

    /// Accepts the offered streams, with a reply that must follow immediately. Each stream has its own ticket, by which
    /// it is [finished](Self::finish).
    fn accept_streams(&mut self, _ticket: &mut Self::Ticket, _options: &StreamOptions) -> Vec<Self::Ticket> {
        Vec::new()
    }

    /// Starts a streamed response: metadata before its messages, and their format and compression. Without it, the
    /// first message starts the response with an empty head.
    fn start_response(&mut self, _stream: StreamId, _head: Head, _out: &mut Outbox) {}

    /// Sends one message of a response, encoded but not compressed yet.
    ///
    /// It is accepted regardless of [`has_room`](Self::has_room); the session buffers what the peer does not accept
    /// yet.
    fn message(&mut self, _stream: StreamId, _message: Bytes, _out: &mut Outbox) {}

    /// Ends a streamed response, with its trailers.
    fn finish(
        &mut self,
        _ticket: Self::Ticket,
        _result: Result<(), Status>,
        _trailers: Metadata,
        _out: &mut Outbox,
    ) {
    }

    /// Whether the peer accepts more of this response now. If not, [`ServerEvent::Room`] follows.
    fn has_room(&self, _stream: StreamId) -> bool {
        true
    }

    /// Records that the handler has consumed this many bytes of messages: the peer may send as many again.
    fn consumed(&mut self, _stream: StreamId, _bytes: usize, _out: &mut Outbox) {}

    /// Resets a stream, in any state.
    fn reset(&mut self, _stream: StreamId, _out: &mut Outbox) {}

    /// Whether replies are still buffered in the session until there is room: a connection that is to be closed
    /// continues to read until then.
    fn has_pending_output(&self) -> bool {
        false
    }

    /// Whether the inbox is not parsed before the next reply, so that reading more is useless.
    fn blocks_input(&self) -> bool {
        false
    }

    /// Passes the time to the session, as the duration since a fixed moment. Applies timeouts that the session keeps
    /// itself; resulting events are returned by the next calls.
    ///
    /// The driver calls it before it asks for events, and at least every quarter of a second while the session [needs
    /// it](Self::needs_ticks). `true`: more timeouts have expired than were applied; the driver gives others their turn
    /// and then calls again.
    fn tick(&mut self, _now: Duration, _out: &mut Outbox) -> bool {
        false
    }

    /// Whether a timeout is running in the session, so that it needs [ticks](Self::tick) even if nothing arrives.
    fn needs_ticks(&self) -> bool {
        false
    }

    /// Applies the verdict on a request whose head was emitted by [`ServerEvent::Head`]: if accepted, its body is read;
    /// otherwise the request is answered. Returns whether the connection must be closed after `out` is written.
    fn apply_verdict(&mut self, _stream: StreamId, _verdict: Verdict, _out: &mut Outbox) -> bool {
        false
    }

    /// Returns the size of buffered requests in bytes: of incomplete messages, and of those not emitted yet.
    fn buffered(&self) -> usize {
        0
    }

    /// Returns the size of buffered responses in bytes, which wait for the peer's windows or for earlier responses.
    fn unsent(&self) -> usize {
        0
    }

    /// Pings the peer; its answer is [`ServerEvent::Alive`]. Returns `false` if the protocol has no ping.
    fn ping(&mut self, _out: &mut Outbox) -> bool {
        false
    }

    /// Reports to the peer why its connection is about to be closed, if the protocol supports that.
    fn abort(&mut self, _status: &Status, _out: &mut Outbox) {}

    /// Sends an unsolicited message.
    ///
    /// # Errors
    ///
    /// [`Unimplemented`](crate::Code::Unimplemented) if the protocol cannot push.
    fn push(&mut self, _push: Push, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol cannot push"))
    }

    /// Sends a published message of a topic to which the peer has [subscribed](ServerEvent::Subscribe).
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    fn publish(&mut self, _topic: &[u8], _data: Bytes, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no topics"))
    }

    /// Returns the total number of bytes that the inbox must hold before the next event; 0 if unknown. A hint for
    /// sizing reads: the length of a frame is known long before its last byte arrives, and it has been checked against
    /// [`Limits::message`].
    fn bytes_needed(&self) -> usize;

    /// Whether the inbox contains an incomplete event: its header has arrived, its end has not. Lets the driver
    /// distinguish slow peers from idle ones.
    fn is_mid_message(&self, inbox: &BytesMut) -> bool {
        !inbox.is_empty()
    }

    /// Whether the incomplete part is a head of unknown length (HTTP/1), which has a timeout of its own.
    fn is_in_head(&self) -> bool {
        false
    }

    /// Returns the number of heartbeats that were answered.
    fn heartbeats(&self) -> u64 {
        0
    }

    /// Returns the rejections without an event since the last call; `None` if there were none.
    ///
    /// The driver calls it when the session needs more bytes, and counts the result: it is the only record of these
    /// rejections.
    fn take_refusals(&mut self) -> Option<Refusals> {
        None
    }

    /// Announces that the server will drain soon, and accepts calls until then: replies ask the peer to use another
    /// connection for further calls, if the protocol can express that in a reply (`Connection: close`).
    fn go_away(&mut self) {}

    /// Drains the connection: calls that arrive from now on are rejected in the protocol's own form, and replies ask
    /// the peer not to reuse the connection if the protocol can express that.
    fn drain(&mut self, out: &mut Outbox);

    /// Whether a peer that was asked to drain may still send calls that it started before it noticed, or the rest of
    /// such a call: a draining server waits for them.
    fn expects(&self) -> bool {
        false
    }

    /// Whether the connection should be closed once all calls are answered and written (`Connection: close`, or a
    /// protocol error that was already reported).
    fn finished(&self) -> bool {
        false
    }
}

/// Client side of a connection.
pub trait Client {
    /// Appends a call to `out`. `id` is returned with the reply; it must not be in use on this connection.
    ///
    /// # Errors
    ///
    /// A [`Status`] if the protocol cannot express the call; nothing was appended then.
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status>;

    /// Appends the start of a streaming call, whose body is empty.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); [`Unimplemented`](crate::Code::Unimplemented) if the protocol has no streams.
    fn open(&mut self, _id: CallId, _call: Call<'_>, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no streams"))
    }

    /// Appends a call with attached streams, each with the identifier of an opened call. They start when the call has
    /// been answered, and have ended by then if they were not accepted.
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

    /// Appends a subscription: messages published under `key` and `token` arrive as [`ClientEvent::Message`]s of this
    /// call until it is cancelled.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); [`Unimplemented`](crate::Code::Unimplemented) if the protocol has no topics.
    fn subscribe(&mut self, _id: CallId, _key: &str, _token: &str, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no topics"))
    }

    /// Sends one message of an opened call, encoded but not compressed yet.
    ///
    /// It is accepted regardless of [`has_room`](Self::has_room); the session buffers what the peer does not accept
    /// yet.
    fn message(&mut self, _id: CallId, _message: Bytes, _out: &mut Outbox) {}

    /// Ends the messages of an opened call; its response may continue. Sends nothing if the protocol [cannot express
    /// it](Self::half_closes).
    fn end(&mut self, _id: CallId, _out: &mut Outbox) {}

    /// Whether the protocol can express that one direction of an opened call has [ended](Self::end) while the other
    /// continues.
    fn half_closes(&self) -> bool {
        false
    }

    /// Ends an opened call gracefully, after the messages sent: both directions if they end together. Its
    /// [reply](ClientEvent::Reply) confirms that the peer has received the end.
    fn close(&mut self, id: CallId, out: &mut Outbox) {
        self.end(id, out);
    }

    /// Whether the peer accepts more of this call now. If not, [`ClientEvent::Room`] follows.
    fn has_room(&self, _id: CallId) -> bool {
        true
    }

    /// Whether the peer accepts any messages of this call.
    fn writable(&self, _id: CallId) -> bool {
        true
    }

    /// Records that the caller has consumed this many bytes of messages: the peer may send as many again.
    fn consumed(&mut self, _id: CallId, _bytes: usize, _out: &mut Outbox) {}

    /// Whether the inbox is not parsed until messages were [consumed](Self::consumed), in a protocol without flow
    /// control, so that reading more is useless.
    fn blocks_input(&self) -> bool {
        false
    }

    /// Takes the next event out of `inbox`, or returns `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// A [`Violation`] ends the connection and fails all of its calls.
    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation>;

    /// Cancels a call: its reply is no longer awaited. The driver discards a later reply to it; protocols that support
    /// cancellation send it.
    fn cancel(&mut self, _id: CallId, _out: &mut Outbox) {}

    /// Returns the total number of bytes that the inbox must hold before the next event; 0 if unknown.
    fn bytes_needed(&self) -> usize;

    /// Whether calls are still buffered in the session until a handshake is complete: a connection that is to be closed
    /// stays open until they are sent.
    fn has_pending_output(&self) -> bool {
        false
    }

    /// Returns the maximum number of concurrent calls: 1 for a protocol without correlation ids.
    fn concurrency(&self) -> usize {
        usize::MAX
    }

    /// Whether another call may be sent, or the connection is about to end (`Connection: close`).
    fn reusable(&self) -> bool {
        true
    }

    /// Handles the end of the peer's output: a reply that is delimited by the end of the connection is complete now.
    fn end_of_stream(&mut self, _inbox: &mut BytesMut) -> Option<ClientEvent> {
        None
    }

    /// Returns a further explanation of a connection that the server closes, or breaks, before any successful call: a
    /// protocol with dialects lists the others.
    fn failure_hint(&self) -> Option<String> {
        None
    }

    /// Appends the protocol's heartbeat; its answer is [`ClientEvent::Alive`]. Returns `false` if there is no answer:
    /// the protocol has no heartbeat, servers do not answer it, or the peer would not tolerate it now.
    fn heartbeat(&mut self, _out: &mut Outbox) -> bool {
        false
    }
}

/// Event of a server session.
#[derive(Debug)]
pub enum ServerEvent<'s, T> {
    /// The head of a request whose body has not arrived. The session continues to read after [`Server::apply_verdict`]
    /// was called for it.
    Head(RequestHead<'s>, StreamId),
    /// A complete unary request. Names are borrowed from the session; the body is shared, not copied.
    Call(Call<'s>, T),
    /// A request that continues with messages, until [`End`](Self::End). Only the method determines whether it is a
    /// unary request in pieces or a stream.
    Open(Call<'s>, T, StreamId),
    /// One message of an open request.
    Message(StreamId, Message),
    /// The end of an open request's messages.
    End(StreamId),
    /// The peer accepts more of a response.
    Room(StreamId),
    /// The peer has cancelled this call: its reply would be discarded.
    Cancelled(StreamId),
    /// The peer has answered a [`ping`](Server::ping).
    Alive,
    /// Much work was done for this peer, possibly without other events: other connections should have their turn. The
    /// inbox may contain more.
    Pause,
    /// The peer subscribes to this topic.
    Subscribe(Topic),
    /// The rest of the inbox is not of this protocol: answer pending calls, then detect the protocol again. The peers
    /// allow a connection to change its protocol between messages (brpc `input_messenger.cpp`).
    Foreign,
    /// The peer's `CONNECT` for another protocol was accepted: detect the protocol again. What was negotiated before,
    /// such as ALPN, applied to HTTP.
    Connect,
    /// The connection continues in HTTP/2, whose first request has already arrived: the HTTP/2 session takes it over.
    Upgrade(Handover),
    /// The connection continues as a WebSocket: the protocol of its messages is detected next.
    WebSocket,
}

/// State that a session passes to the session of another protocol, which takes over the connection. Only these two know
/// its type.
pub struct Handover(Box<dyn Any + Send>);

impl Handover {
    /// Wraps the state.
    pub fn new(state: impl Any + Send) -> Self {
        Self(Box::new(state))
    }

    /// Returns the state if it has this type.
    pub fn downcast<T: Any>(self) -> Option<T> {
        self.0.downcast().ok().map(|state| *state)
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handover")
    }
}

/// Data about a request before its body has arrived.
#[derive(Debug)]
pub struct RequestHead<'s> {
    /// Service and method; `None` if only the body contains them (JSON-RPC).
    pub target: Option<(&'s str, &'s str)>,
    /// Credential of the caller.
    pub credential: Credential,
}

/// Decision about a request by its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its body is read. Its call is marked as [authenticated](Call::authenticated).
    Accepted,
    /// Its credential was rejected.
    Unauthenticated(Status),
    /// It cannot be served now.
    Refused(Status),
    /// Its service or method does not exist.
    Missing(NotFound),
}

/// Number of rejections by a session itself, by cause: there was no call, or the call was aborted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Exceeded [`Limits`]: by a message, a body or a head.
    pub too_large: u64,
    /// Unknown services, methods or paths.
    pub unknown: u64,
    /// Unsupported content types, encodings or HTTP methods.
    pub unsupported: u64,
}

/// Cause of a rejection by a session itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// See [`Refusals::too_large`].
    TooLarge,
    /// See [`Refusals::unknown`].
    Unknown,
    /// See [`Refusals::unsupported`].
    Unsupported,
}

/// Rejections that were not reported yet. Takes one word if there are none.
#[derive(Debug, Default)]
pub struct UnreportedRefusals(Option<Box<Refusals>>);

impl UnreportedRefusals {
    /// Counts a rejection.
    #[cold]
    pub fn record(&mut self, refused: RefusalCause) {
        let refusals = self.0.get_or_insert_default();
        match refused {
            RefusalCause::TooLarge => refusals.too_large += 1,
            RefusalCause::Unknown => refusals.unknown += 1,
            RefusalCause::Unsupported => refusals.unsupported += 1,
        }
    }

    /// Returns the rejections since the last call, for [`Server::take_refusals`].
    pub fn take(&mut self) -> Option<Refusals> {
        self.0.take().map(|refusals| *refusals)
    }
}

/// Streams that a caller offers with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedStreams {
    /// Identifier of the first stream; those of the others follow it.
    pub first: StreamId,
    /// Number of streams; 0 if the connection has no room for them.
    pub streams: usize,
    /// Whether the caller accepts messages.
    pub writable: bool,
}

/// Options of the streams that this side attaches to a call. The names are those of brpc's `StreamOptions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Maximum number of bytes sent but not consumed; the message that exceeds it is the last. 0: unlimited, and the
    /// peer need not report what it consumes. Default: 2 MiB.
    pub max_buf_size: usize,
    /// The same at the start, and while the streams of the connection have too many unconsumed bytes, if
    /// `StreamLimits::unconsumed_in_all` is set; 0: none. Default: 1 MiB.
    pub min_buf_size: usize,
    /// Whether this side accepts messages. If not, the peer is asked to send none.
    pub receives: bool,
    /// Time without messages after which this side ends the stream; `None`: limited by the connection only. It applies
    /// to one side and is not sent to the other, so the driver implements it; a server rounds it up to its ticks.
    /// brpc's `idle_timeout_ms` only notifies its user.
    pub idle_timeout: Option<Duration>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { max_buf_size: 2 << 20, min_buf_size: 1 << 20, receives: true, idle_timeout: None }
    }
}

/// Missing target of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// The service does not exist.
    Service,
    /// The service has no such method.
    Method,
}

/// Event of a client session.
#[derive(Debug)]
pub enum ClientEvent {
    /// A call was answered, or an opened call has ended: with an empty message, or with a failure.
    Reply(CallId, Reply),
    /// The response to an opened call has started: the metadata before its messages.
    Head(CallId, Head),
    /// One message of the response to an opened call.
    Message(CallId, Message),
    /// The peer accepts more of an opened call.
    Room(CallId),
    /// An unsolicited message.
    Push(Push),
    /// The peer answered a heartbeat.
    Alive,
    /// The peer closes the connection because of too many heartbeats.
    TooManyHeartbeats,
    /// The peer drains the connection: send nothing more, but wait for pending replies.
    GoAway,
}

/// Limits of a connection. Every length announced by a peer is checked against them before memory is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of one message on the wire in bytes, headers included. 64 MiB, as brpc's `max_body_size`.
    pub message: usize,
    /// Maximum size of one message after decompression in bytes. 64 MiB.
    pub decompressed: usize,
    /// Maximum size of a header without a length of its own (an HTTP head) in bytes. 64 KiB.
    pub header: usize,
    /// Timeouts of messages, for sessions with several incomplete ones at a time (HTTP/2).
    pub pace: SlowPeerGuard,
}

/// Timeouts of an incomplete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowPeerGuard {
    /// Interval in which the rate is checked. 10 s.
    pub interval: Duration,
    /// Minimum number of bytes per second, averaged over an interval. 1 KiB.
    pub rate: usize,
    /// Maximum time from the first byte of a message to its last. 2 minutes.
    pub whole: Duration,
}

impl SlowPeerGuard {
    /// The default values.
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

/// Violation of the protocol that ends a connection: its bytes are not valid, and failing a single call would not help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    reason: String,
    kind: ViolationKind,
}

/// Kind of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// Bytes that are not valid in the protocol.
    Malformed,
    /// A message or a head that exceeds its limit.
    TooLarge,
    /// More work than a well-behaved peer causes: resets, control frames, empty frames.
    Flood,
}

impl Violation {
    /// Creates a violation with a reason, in lower case and without a full stop.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind: ViolationKind::Malformed }
    }

    /// Creates a violation of a limit, with a reason as in [`new`](Self::new).
    #[cold]
    pub fn too_large(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind: ViolationKind::TooLarge }
    }

    /// Creates the violation of a message that exceeds the limit, in bytes.
    #[cold]
    pub fn message_too_large(length: usize, limit: usize) -> Self {
        Self::too_large(format!("message is too long: {length} bytes where {limit} are allowed"))
    }

    /// Creates the violation of a body, including everything in a frame after its header, that exceeds the limit, in
    /// bytes.
    #[cold]
    pub fn body_too_large(length: usize, limit: usize) -> Self {
        Self::too_large(format!("a body of {length} bytes exceeds the limit of {limit}"))
    }

    /// Returns the same violation with this kind.
    #[must_use]
    pub fn of_kind(self, kind: ViolationKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the kind of the violation.
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

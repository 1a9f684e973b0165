use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use polyrpc_core::session::ViolationKind;
use polyrpc_core::{Outbox, Violation};

use super::closed_streams::{CloseReason, ClosedStreams};
use super::frame::Header;
use super::guard::AbuseGuard;
use super::hpack::{Decoder, Encoder, Fields};
use super::long_frame_state::{LONG_READ, LongFrameState};
use super::settings::{DEFAULT_FRAME, DEFAULT_TABLE, DEFAULT_WINDOW, PeerSettings, Settings};
use super::status::{ErrorCode, Fault, connection_error};
use super::stream::{Role, State, Stream};
use super::streams::Streams;
use super::{frame, settings};

/// Limits of a connection, and the settings that it announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of concurrent streams opened by the peer. 1024.
    pub streams: u32,
    /// Maximum size of a header list, counted like `SETTINGS_MAX_HEADER_LIST_SIZE`. 64 KiB.
    pub header_list: usize,
    /// Maximum payload size of a frame in bytes. 16 KiB, the smallest value that the protocol allows; larger values are
    /// announced, up to 16 MiB.
    pub frame: u32,
    /// Maximum payload size of a frame once two DATA frames of at least 16 KiB were consumed, which is when it is
    /// announced. 1 MiB.
    pub large_frame: u32,
    /// Initial receive window of a stream in bytes. 64 KiB.
    pub window: u32,
    /// Initial receive window of a stream once [`large_frame`](Self::large_frame) was announced. 1 MiB; `max_window`
    /// limits it.
    pub large_window: u32,
    /// Limit to which a stream's receive window may grow while its messages are consumed as fast as they arrive. 4 MiB.
    pub max_window: u32,
    /// Receive window of the connection in bytes. 16 MiB.
    pub connection_window: u32,
    /// Bytes that a stream may queue for the peer's window before [`Connection::has_room`] returns `false`. 64 KiB.
    pub unsent: usize,
    /// Bytes that all streams together may queue for the peer's windows before new streams are refused; each stream
    /// counts with at most `unsent` bytes. 64 MiB.
    pub unsent_in_all: usize,
    /// Bytes that all streams together may queue before new streams are refused, however few the streams are. 64 MiB.
    pub max_unsent: usize,
    /// How long the peer may read nothing of a response that is finished but still queued, however short it is; then
    /// its stream is reset. 30 s. A client's request may stall for longer if no more than [`unsent`](Self::unsent)
    /// bytes of it are queued.
    pub stalled: Duration,
    /// Streams that the peer may reset, or make us reset, in one burst, beyond those that end normally. 1000. A change
    /// of the initial window size counts as eight resets, unless it is among the first of its second.
    pub resets: u32,
    /// How many such resets are forgiven per second, as measured by [`Connection::tick`]. 100.
    pub resets_per_second: u32,
}

impl Config {
    /// Length of the longest accepted header block in bytes. The list limit counts decoded bytes, and Huffman code
    /// makes them shorter; no well-behaved peer needs four times the list limit.
    pub(super) fn longest_block(&self) -> usize {
        self.header_list.saturating_mul(4)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams: 1024,
            header_list: 64 << 10,
            frame: DEFAULT_FRAME as u32,
            large_frame: 1 << 20,
            window: 64 << 10,
            large_window: 1 << 20,
            max_window: 4 << 20,
            connection_window: 16 << 20,
            unsent: 64 << 10,
            unsent_in_all: 64 << 20,
            max_unsent: 64 << 20,
            stalled: Duration::from_secs(30),
            resets: 1000,
            resets_per_second: 100,
        }
    }
}

/// One side of a connection.
///
/// [`next_event`](Self::next_event) reads the received bytes; it and the commands (`send.rs`) append the bytes to be
/// sent to the outbox. The layer above stores a `T` with each stream.
#[derive(Debug)]
pub struct Connection<T = ()> {
    pub(super) role: Role,
    pub(super) config: Arc<Config>,
    pub(super) opening: PrefaceState,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) streams: Streams<T>,
    pub(super) closed: ClosedStreams,
    /// Highest stream identifier opened by the peer.
    pub(super) last_theirs: u32,
    /// Identifier of the next stream that we open.
    pub(super) next_ours: u32,
    pub(super) peer: PeerSettings,
    /// The peer has acknowledged our SETTINGS.
    pub(super) acknowledged: bool,
    /// Connection-level send window.
    pub(super) send_window: i64,
    /// Streams blocked on the connection's send window, served in turn.
    pub(super) blocked: VecDeque<u32>,
    /// Bytes queued on all streams.
    pub(super) queued: usize,
    /// Streams whose last bytes are queued but not sent: a stall timer runs for each of them.
    pub(super) ending: usize,
    /// The peer has enlarged the windows of all streams, and the queued data was not flushed yet.
    pub(super) grown: bool,
    /// Initial receive window of a stream, as announced last.
    pub(super) initial_window: u32,
    /// Connection-level receive window.
    pub(super) receive_window: i64,
    /// Received bytes whose WINDOW_UPDATE was not sent yet.
    pub(super) credit: u32,
    /// Bytes received on all streams and not consumed yet.
    pub(super) unread: usize,
    /// Bytes of `unread` whose connection window was withheld, since too much waits to be consumed.
    pub(super) withheld: usize,
    /// Bytes by which the receive windows of open streams have grown beyond the announced initial window.
    pub(super) growth: usize,
    /// An incomplete header block: CONTINUATION frames must follow.
    pub(super) block: Option<Block>,
    pub(super) guard: AbuseGuard,
    pub(super) shutdown: ShutdownState,
    /// Time of the first tick after a graceful shutdown was started.
    pub(super) shutdown_started: Option<Duration>,
    /// Our PINGs that were not answered yet.
    pub(super) pings: u32,
    pub(super) events: VecDeque<Event>,
    /// Frames read since the last [`Event::Pause`], plus the cost of decoding header blocks, measured in frames.
    pub(super) taken: u32,
    pub(super) bytes_needed: usize,
    pub(super) long_frame: LongFrameState,
}

/// Progress of the connection preface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefaceState {
    /// Nothing was sent yet.
    Silent,
    /// We have sent our SETTINGS.
    Greeted,
    /// The peer's preface was received; its SETTINGS must follow.
    Prefaced,
    /// Both prefaces were exchanged.
    Open,
}

/// A header block whose frames were not all received yet.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) end: bool,
    /// The stream is in error, but the block must be decoded all the same.
    pub(super) fault: Option<ErrorCode>,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

/// Progress of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShutdownState {
    NotStarted,
    /// The first GOAWAY was sent; requests in flight are accepted until the peer has read it.
    Announced,
    /// The final GOAWAY with the last stream identifier was sent.
    Final(u32),
}

/// Frames after which a server yields to its other connections: some tens of microseconds, whatever the frames are.
const FRAMES_PER_TURN: u32 = 128;

/// Bytes of a header block that cost about as much to decode as a frame: each may be a field.
pub(super) const HEADER_BYTES_PER_FRAME_COST: usize = 32;

/// The stream of the request that upgraded a connection from HTTP/1 to HTTP/2.
pub const UPGRADED: u32 = 1;

/// An event read from the inbox.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Header fields of a request that opens a stream, or of the response on one of our streams.
    Headers {
        /// The stream.
        stream: u32,
        /// The fields. A repeated block gives the same list, so that comparing pointers is enough.
        fields: Arc<Fields>,
        /// END_STREAM was set.
        end: bool,
    },
    /// A complete message: the header fields and all of its data, without trailers.
    Whole {
        /// The stream.
        stream: u32,
        /// The fields, as in [`Headers`](Self::Headers).
        fields: Arc<Fields>,
        /// The data.
        body: Bytes,
    },
    /// A piece of the data. Report it with [`Connection::record_consumed`] when it was processed.
    Data {
        /// The stream.
        stream: u32,
        /// The piece.
        bytes: Bytes,
        /// END_STREAM was set.
        end: bool,
    },
    /// A header list larger than [`Config::header_list`]: of a request, which must be answered, of a response, or
    /// trailers. The stream stays open.
    Oversized {
        /// The stream.
        stream: u32,
        /// It is the header list of a message, not trailers. For a request, no earlier event was emitted.
        head: bool,
        /// The fields that fitted into the limit.
        fields: Arc<Fields>,
        /// The size of the whole list.
        size: usize,
    },
    /// Trailers; nothing follows.
    Trailers {
        /// The stream.
        stream: u32,
        /// The fields.
        fields: Arc<Fields>,
    },
    /// The stream was reset: by the peer, or by us because the peer sent something invalid.
    Reset {
        /// The stream.
        stream: u32,
        /// The error code.
        code: ErrorCode,
        /// The peer sent the RST_STREAM.
        by_peer: bool,
    },
    /// The stream has [room](Connection::has_room) again.
    Room {
        /// The stream.
        stream: u32,
    },
    /// A server has read many frames and should yield to its other connections. A few bytes may hold very many small
    /// frames.
    Pause,
    /// The peer answered a [`ping`](Connection::ping).
    Pong,
    /// The peer sent GOAWAY: it does not process streams above `last`.
    GoAway {
        /// The last stream that the peer may have processed.
        last: u32,
        /// The error code.
        code: ErrorCode,
        /// The peer's debug data, truncated to the length of a line.
        reason: Bytes,
    },
}

impl<T> Connection<T> {
    /// Bytes buffered of an incomplete header block.
    pub fn buffered(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bytes.len())
    }

    /// Bytes held by HPACK: the tables of both directions, and the decoder's memory of the peer's header blocks.
    pub fn remembered(&self) -> usize {
        self.decoder.held() + self.encoder.footprint()
    }

    /// The receive window of the connection.
    pub(super) fn whole_window(&self) -> usize {
        self.config.connection_window.max(DEFAULT_WINDOW) as usize
    }

    /// Bytes queued for the peer's windows.
    pub fn queued(&self) -> usize {
        self.queued
    }
}

impl<T: Default> Connection<T> {
    /// Creates the server's side of a newly accepted connection.
    pub fn server(config: Arc<Config>) -> Self {
        Self::new(Role::Server, config)
    }

    /// Creates the server's side of a connection upgraded from HTTP/1 (RFC 7540, §3.2). The upgrade request is stream
    /// 1, on which nothing more arrives; its response must wait until [`send_settings`](Self::send_settings) was
    /// called.
    pub fn from_upgrade(config: Arc<Config>, settings: Settings) -> Self {
        let mut connection = Self::server(config);
        connection.peer = settings.0;
        connection.encoder.resize(connection.peer.table);
        let window = connection.config.window;
        connection.streams.insert(UPGRADED, Stream::new(State::RemoteDone, connection.peer.window, window));
        connection.last_theirs = UPGRADED;
        connection
    }

    /// Creates the client's side of a newly established connection.
    pub fn client(config: Arc<Config>) -> Self {
        Self::new(Role::Client, config)
    }

    fn new(role: Role, config: Arc<Config>) -> Self {
        Self {
            role,
            decoder: Decoder::new(DEFAULT_TABLE, config.header_list),
            encoder: Encoder::new(),
            opening: PrefaceState::Silent,
            streams: Streams::default(),
            closed: ClosedStreams::default(),
            last_theirs: 0,
            next_ours: if role == Role::Client { 1 } else { 2 },
            peer: PeerSettings::default(),
            acknowledged: false,
            send_window: DEFAULT_WINDOW.into(),
            blocked: VecDeque::new(),
            queued: 0,
            ending: 0,
            grown: false,
            initial_window: config.window,
            receive_window: DEFAULT_WINDOW.into(),
            credit: 0,
            unread: 0,
            withheld: 0,
            growth: 0,
            block: None,
            guard: AbuseGuard::default(),
            shutdown: ShutdownState::NotStarted,
            shutdown_started: None,
            pings: 0,
            events: VecDeque::new(),
            taken: 0,
            bytes_needed: 0,
            long_frame: LongFrameState::default(),
            config,
        }
    }

    /// Reads the next event from `inbox`; `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// A [`Violation`] ends the connection; the GOAWAY with the reason is in `out`.
    pub fn next_event(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Result<Option<Event>, Violation> {
        self.send_settings(out);
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if let Some(flood) = self.guard.exceeded_limit(self.config.resets) {
                return Err(self.give_up(ErrorCode::ENHANCE_YOUR_CALM, flood, ViolationKind::Flood, out));
            }
            if self.taken >= FRAMES_PER_TURN && self.role == Role::Server && !inbox.is_empty() {
                self.taken = 0;
                if self.grown {
                    self.flush_grown(out);
                }
                return Ok(Some(Event::Pause));
            }
            self.taken += 1;
            match self.take_frame(inbox, out) {
                Ok(Some(FrameOutcome::Event(event))) => return Ok(Some(event)),
                Ok(Some(FrameOutcome::Nothing)) => {}
                Ok(None) => {
                    self.taken -= 1;
                    self.guard.burst = 0;
                    if self.grown {
                        self.flush_grown(out);
                        continue;
                    }
                    self.grant(out);
                    return Ok(None);
                }
                Err(Fault::Stream(stream, code)) => {
                    if let Some(event) = self.refuse(stream, code, out) {
                        return Ok(Some(event));
                    }
                }
                Err(Fault::Connection(code, why)) => {
                    let flood = code == ErrorCode::ENHANCE_YOUR_CALM;
                    let kind = if flood { ViolationKind::Flood } else { ViolationKind::Malformed };
                    return Err(self.give_up(code, why, kind, out));
                }
                Err(Fault::TooLarge(code, why)) => {
                    return Err(self.give_up(code, &why, ViolationKind::TooLarge, out));
                }
            }
        }
    }

    /// Returns how many bytes the inbox must hold before the next event is available; 0 if unknown.
    pub fn bytes_needed(&self) -> usize {
        self.bytes_needed
    }

    /// Whether the peer has started something that is incomplete, however little of it is in the inbox: the connection
    /// preface, a header block, or a long frame that is ignored.
    pub fn is_mid_message(&self) -> bool {
        self.opening != PrefaceState::Open || self.block.is_some() || self.long_frame.is_ignoring()
    }

    /// Returns the largest header list that the peer accepts, as far as it has announced one.
    pub fn largest_list(&self) -> usize {
        self.peer.header_list
    }

    /// Queues an event that is emitted before those in the inbox.
    pub(crate) fn queue_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the encoder for header blocks; each block must be sent before the next one is started.
    pub fn encoder(&mut self) -> &mut Encoder {
        &mut self.encoder
    }

    /// Returns how many streams this side may have open concurrently: the peer's setting.
    pub fn concurrency(&self) -> usize {
        self.peer.streams
    }

    /// Sends our SETTINGS, once. Every other method that sends or receives does so too, except those that send
    /// responses.
    pub fn send_settings(&mut self, out: &mut Outbox) {
        if self.opening != PrefaceState::Silent {
            return;
        }
        self.opening = PrefaceState::Greeted;
        let longest = self.longest_frame();
        let buffer = out.buffer();
        let config = &self.config;
        let first = match self.role {
            Role::Server => (settings::MAX_CONCURRENT_STREAMS, config.streams),
            Role::Client => {
                buffer.extend_from_slice(frame::PREFACE);
                self.opening = PrefaceState::Prefaced;
                (settings::ENABLE_PUSH, 0)
            }
        };
        let all = [
            first,
            (settings::INITIAL_WINDOW_SIZE, config.window),
            (settings::MAX_HEADER_LIST_SIZE, u32::try_from(config.header_list).unwrap_or(u32::MAX)),
            (settings::MAX_FRAME_SIZE, longest as u32),
        ];
        // The default frame size need not be announced.
        let sent_settings = if longest > DEFAULT_FRAME { &all[..] } else { &all[..3] };
        frame::settings(buffer, sent_settings);
        if let Some(more) = config.connection_window.checked_sub(DEFAULT_WINDOW).filter(|more| *more > 0) {
            frame::window_update(buffer, 0, more);
            self.receive_window += i64::from(more);
        }
    }

    /// Reads one frame; `None` if it is incomplete.
    fn take_frame(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Result<Option<FrameOutcome>, Fault> {
        self.bytes_needed = 0;
        if self.opening == PrefaceState::Greeted && !self.take_preface(inbox)? {
            return Ok(None);
        }
        if self.long_frame.is_within_frame() {
            return self.take_rest(inbox, out);
        }
        let Some(header) = Header::read(inbox) else { return Ok(None) };
        self.check_order(header)?;
        let is_long = header.length > DEFAULT_FRAME;
        if is_long && self.check_long(header, inbox)? {
            return Ok(Some(FrameOutcome::Nothing));
        }
        let whole = frame::HEADER + header.length;
        if inbox.len() < whole {
            self.bytes_needed = whole;
            return if is_long { self.wait_for_long(header, inbox, out) } else { Ok(None) };
        }
        if header.kind == frame::DATA {
            inbox.advance(frame::HEADER);
            let payload = self.take_payload(header.length, inbox);
            return self.data_event(header, payload, out).map(Some);
        }
        let mut fault = None;
        let mut taken = FrameOutcome::Nothing;
        match self.handle_control(header, &inbox[frame::HEADER..whole], out) {
            Ok(event) => taken = event,
            Err(error) => fault = Some(error),
        }
        inbox.advance(whole);
        if let Some(fault) = fault {
            return Err(fault);
        }
        Ok(Some(match taken {
            FrameOutcome::Event(Event::Headers { stream, fields, end: false }) => {
                FrameOutcome::Event(self.with_body(stream, fields, inbox)?)
            }
            taken => taken,
        }))
    }

    /// Handles the typical unary request: its only DATA frame follows its HEADERS directly.
    fn with_body(&mut self, id: u32, fields: Arc<Fields>, inbox: &mut BytesMut) -> Result<Event, Fault> {
        let headers = |fields| Ok(Event::Headers { stream: id, fields, end: false });
        let Some(mut header) = Header::read(inbox) else { return headers(fields) };
        if self.role == Role::Server
            && (header.kind, header.stream) == (frame::WINDOW_UPDATE, id)
            && self.take_first_window(id, inbox)
        {
            let Some(next) = Header::read(inbox) else { return headers(fields) };
            header = next;
        }
        let plain = header.kind == frame::DATA && header.stream == id && header.flags == frame::END_STREAM;
        let whole = frame::HEADER + header.length;
        if !plain || self.role == Role::Client || inbox.len() < whole {
            return headers(fields);
        }
        let longest = self.longest_frame();
        let Some(known) = self.streams.get_mut(id) else { return headers(fields) };
        let misses = known.expected.is_some_and(|expected| expected != header.length as u64);
        let window = known.receive_window.min(self.receive_window);
        if misses || window < header.length as i64 || header.length > longest {
            // Processing the frame itself reports the error.
            return headers(fields);
        }
        known.state = State::RemoteDone;
        self.count_data(header.length)?;
        self.release(header.length);
        inbox.advance(frame::HEADER);
        let body = self.take_payload(header.length, inbox).freeze();
        Ok(Event::Whole { stream: id, fields, body })
    }

    /// Processes a DATA frame, and returns its data.
    pub(super) fn data_event(
        &mut self,
        header: Header,
        mut payload: BytesMut,
        out: &mut Outbox,
    ) -> Result<FrameOutcome, Fault> {
        let Some(data) = self.handle_data(header, payload.first().copied(), out)? else {
            return Ok(FrameOutcome::Nothing);
        };
        payload.truncate(data.end);
        payload.advance(data.start);
        let (stream, bytes, end) = (header.stream, payload.freeze(), header.has(frame::END_STREAM));
        Ok(FrameOutcome::Event(Event::Data { stream, bytes, end }))
    }

    /// Takes the payload of a DATA frame out of the inbox.
    ///
    /// A short payload is copied if the inbox is a buffer that was allocated for a long frame; otherwise it would keep
    /// that whole buffer alive. A long payload keeps the buffer, and the bytes after it move to a new one.
    pub(super) fn take_payload(&mut self, length: usize, inbox: &mut BytesMut) -> BytesMut {
        if !self.long_frame.inbox_is_long_buffer {
            return inbox.split_to(length);
        }
        let (payload, behind) = inbox.split_at(length);
        // A payload of more than `LONG_READ` is copied only if at least as many bytes follow it; a shorter one always.
        // So no more bytes are copied than are taken.
        if length > LONG_READ && behind.len() < length {
            let behind = BytesMut::from(behind);
            self.long_frame.inbox_is_long_buffer = behind.len() > LONG_READ;
            let mut payload = mem::replace(inbox, behind);
            payload.truncate(length);
            return payload;
        }
        let payload = BytesMut::from(payload);
        inbox.advance(length);
        if inbox.is_empty() {
            self.long_frame.inbox_is_long_buffer = false;
            *inbox = BytesMut::new();
        }
        payload
    }

    /// Reads the client's connection preface (RFC 9113, §3.4).
    fn take_preface(&mut self, inbox: &mut BytesMut) -> Result<bool, Fault> {
        let n = inbox.len().min(frame::PREFACE.len());
        if inbox[..n] != frame::PREFACE[..n] {
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "not the preface of HTTP/2"));
        }
        if n < frame::PREFACE.len() {
            return Ok(false);
        }
        inbox.advance(n);
        self.opening = PrefaceState::Prefaced;
        Ok(true)
    }

    /// Checks that the first frame is SETTINGS and that no frame interrupts a header block (§3.4, §4.3).
    fn check_order(&mut self, header: Header) -> Result<(), Fault> {
        if self.opening == PrefaceState::Prefaced {
            if header.kind != frame::SETTINGS || header.has(frame::ACK) {
                return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "the first frame is not SETTINGS"));
            }
            self.opening = PrefaceState::Open;
        }
        let expected = self.block.as_ref().map(|block| (frame::CONTINUATION, block.stream));
        match expected {
            Some(expected) if (header.kind, header.stream) != expected => {
                Err(connection_error(ErrorCode::PROTOCOL_ERROR, "another frame inside a header block"))
            }
            _ => Ok(()),
        }
    }

    /// Resets a stream because of a stream error caused by the peer.
    #[cold]
    fn refuse(&mut self, stream: u32, code: ErrorCode, out: &mut Outbox) -> Option<Event> {
        // A refusal by itself is not the peer's fault; where it is, it was counted already.
        let counts_as_abuse = !matches!(code, ErrorCode::REFUSED_STREAM | ErrorCode::NO_ERROR);
        self.guard.resets += u32::from(counts_as_abuse);
        frame::reset(out.buffer(), stream, code);
        if self.closed.close_reason(stream).is_none() && self.streams.get(stream).is_none() {
            // A refused request: its body may be on its way.
            self.guard.expect_late(self.initial_window.max(DEFAULT_WINDOW), self.whole_window());
        }
        let known = self.forget(stream, CloseReason::ByUs);
        known.then_some(Event::Reset { stream, code, by_peer: false })
    }

    #[cold]
    fn give_up(&mut self, code: ErrorCode, why: &str, kind: ViolationKind, out: &mut Outbox) -> Violation {
        self.abort(code, why, out);
        Violation::new(why).with_kind(kind)
    }

    /// Removes a stream. Returns whether it existed.
    pub(super) fn forget(&mut self, id: u32, reason: CloseReason) -> bool {
        self.closed.add(id, reason);
        let Some(stream) = self.streams.remove(id) else { return false };
        if stream.blocked {
            self.blocked.retain(|blocked| *blocked != id);
        }
        self.queued -= stream.queued;
        self.ending -= usize::from(stream.is_ending());
        self.unread -= stream.unread.min(self.unread);
        self.growth -= (stream.window.saturating_sub(self.initial_window) as usize).min(self.growth);
        let released = stream.unread.min(self.withheld);
        self.withheld -= released;
        self.release(released);
        if reason == CloseReason::ByUs && stream.receives() {
            // The peer may not have seen our SETTINGS.
            self.guard.expect_late(stream.window.max(DEFAULT_WINDOW), self.whole_window());
        }
        if reason == CloseReason::Done {
            self.guard.resets = self.guard.resets.saturating_sub(1);
        }
        true
    }
}

/// Result of processing a frame.
pub(super) enum FrameOutcome {
    Nothing,
    Event(Event),
}

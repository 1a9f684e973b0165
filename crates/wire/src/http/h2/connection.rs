use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use polyrpc_core::session::ViolationKind;
use polyrpc_core::{Outbox, Violation};

use super::closed_streams::{CloseReason, ClosedStreams};
use super::frame::Header;
use super::guard::AbuseGuard;
use super::hpack::{Decoder, Encoder, Fields};
use super::settings::{DEFAULT_FRAME, DEFAULT_TABLE, DEFAULT_WINDOW, LONGEST_FRAME, PeerSettings, Settings};
use super::status::{ErrorCode, Fault, connection};
use super::stream::{Role, State, Stream};
use super::streams::Streams;
use super::{frame, settings};

/// What a connection accepts and announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Streams that the peer may have open at once. 1024.
    pub streams: u32,
    /// Size of a header list, counted as `SETTINGS_MAX_HEADER_LIST_SIZE` does. 64 KiB.
    pub header_list: usize,
    /// Bytes of a frame's payload. 16 KiB, the least that the protocol allows; more is announced, to 16 MiB at most.
    pub frame: u32,
    /// Bytes that may come on a stream before they are taken, at first. 64 KiB.
    pub window: u32,
    /// What a stream's window may grow to while its messages are taken as fast as they come. 4 MiB.
    pub most_window: u32,
    /// Bytes that may come on the connection before they are taken. 16 MiB.
    pub connection_window: u32,
    /// Bytes that may wait on a stream for the peer's window before [`Connection::room`] says no. 64 KiB.
    pub unsent: usize,
    /// Bytes that may wait on all streams for the peer's windows before new streams are refused; of one stream no more
    /// than `unsent` of them count. 64 MiB.
    pub unsent_in_all: usize,
    /// Bytes that may wait on all streams, however few these are, before new ones are refused. 64 MiB.
    pub most_unsent: usize,
    /// How long the peer may take nothing of an answer that is finished and waits, however short it is; then its stream
    /// is reset. 30 s. A request of a client's waits for longer if no more than [`unsent`](Self::unsent) bytes of it do.
    pub stalled: Duration,
    /// Streams that the peer may reset, or make us reset, in one burst, beyond those that end well. 1000. A change of
    /// the windows of all streams counts as eight of them, if it is not among the first of its second.
    pub resets: u32,
    /// How many such resets are forgiven each second, as [`Connection::tick`] tells the time. 100.
    pub resets_per_second: u32,
}

impl Config {
    /// Bytes of the longest frame that is taken.
    pub(super) fn longest_frame(&self) -> usize {
        (self.frame as usize).clamp(DEFAULT_FRAME, LONGEST_FRAME)
    }

    /// Bytes of the longest header block that is gathered. What a list may hold is counted decoded, and Huffman code
    /// makes it shorter; four times is never honest.
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
            window: 64 << 10,
            most_window: 4 << 20,
            connection_window: 16 << 20,
            unsent: 64 << 10,
            unsent_in_all: 64 << 20,
            most_unsent: 64 << 20,
            stalled: Duration::from_secs(30),
            resets: 1000,
            resets_per_second: 100,
        }
    }
}

/// One side of a connection.
///
/// Bytes go in by [`next_event`](Self::next_event); what is to be sent is appended to the outbox by it and by the
/// commands (`send.rs`). The layer above keeps a `T` with each stream.
#[derive(Debug)]
pub struct Connection<T = ()> {
    pub(super) role: Role,
    pub(super) config: Arc<Config>,
    pub(super) opening: PrefaceState,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) streams: Streams<T>,
    pub(super) closed: ClosedStreams,
    /// The highest stream that the peer opened.
    pub(super) last_theirs: u32,
    /// The next stream that we open.
    pub(super) next_ours: u32,
    pub(super) peer: PeerSettings,
    /// The peer has read our settings.
    pub(super) acknowledged: bool,
    /// How much the peer takes on the connection.
    pub(super) send_window: i64,
    /// Streams that wait for the connection's window, in turn.
    pub(super) blocked: VecDeque<u32>,
    /// Bytes that wait on all streams.
    pub(super) queued: usize,
    /// Streams whose last bytes were given and wait: a clock runs for each of them.
    pub(super) ending: usize,
    /// The peer has made the windows of all streams larger, and what waits on them was not sent yet.
    pub(super) grown: bool,
    /// How much the peer may send on the connection.
    pub(super) receive_window: i64,
    /// What was received and not told to the peer yet.
    pub(super) credit: u32,
    /// What was received on all streams and not taken yet.
    pub(super) unread: usize,
    /// What of it the peer was not allowed to send again, since too much waits to be taken.
    pub(super) withheld: usize,
    /// A header block of which more frames are to come.
    pub(super) block: Option<Block>,
    pub(super) guard: AbuseGuard,
    pub(super) leaving: ShutdownState,
    /// When it was said that we leave, as told by the first tick behind it.
    pub(super) announced: Option<Duration>,
    /// PINGs of ours that are not answered yet.
    pub(super) pings: u32,
    pub(super) events: VecDeque<Event>,
    /// Frames taken since the last [`Event::Pause`], and what decoding header blocks was worth in frames.
    pub(super) taken: u32,
    wanted: usize,
}

/// How far the connection has been opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefaceState {
    /// Nothing was said yet.
    Silent,
    /// We have said our settings.
    Greeted,
    /// The peer's preface is here; its settings must follow.
    Prefaced,
    /// Both have said who they are.
    Open,
}

/// A header block whose frames are not all here.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) end: bool,
    /// The stream may not go on, but the block must be read all the same.
    pub(super) fault: Option<ErrorCode>,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

/// How far the connection is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShutdownState {
    No,
    /// We said that we will leave; what is on its way is still taken until the peer has heard of it.
    Announced,
    /// We said which stream is the last.
    Last(u32),
}

/// Frames after which a server looks at its other connections: some tens of microseconds, whatever they are.
const TURN: u32 = 128;

/// Bytes of a header block whose decoding is about as much work as a frame: each may be a field.
pub(super) const BLOCK: usize = 32;

/// The stream of the request that asked for HTTP/2 on a connection of HTTP/1.
pub const UPGRADED: u32 = 1;

/// What a connection finds in its inbox.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A head: of a request that opens a stream, or of the response on one of ours.
    Headers {
        /// The stream.
        stream: u32,
        /// The fields. A block that comes again gives the same list, so that comparing pointers is enough.
        fields: Arc<Fields>,
        /// Nothing follows.
        end: bool,
    },
    /// A head and all the data that follow it, with nothing behind.
    Whole {
        /// The stream.
        stream: u32,
        /// The fields, as in [`Headers`](Self::Headers).
        fields: Arc<Fields>,
        /// The data.
        body: Bytes,
    },
    /// A piece of the data. [`Connection::consumed`] says when it was taken.
    Data {
        /// The stream.
        stream: u32,
        /// The piece.
        bytes: Bytes,
        /// Nothing follows.
        end: bool,
    },
    /// A header list larger than [`Config::header_list`]: of a request, which must be answered, of a response, or
    /// trailers. The stream goes on.
    Oversized {
        /// The stream.
        stream: u32,
        /// It is the head of a message: of a request, nothing was given out before.
        head: bool,
        /// The fields that still fitted.
        fields: Arc<Fields>,
        /// The size of the whole list.
        size: usize,
    },
    /// The fields behind the data; nothing follows.
    Trailers {
        /// The stream.
        stream: u32,
        /// The fields.
        fields: Arc<Fields>,
    },
    /// The stream was reset: by the peer, or by us because of what the peer sent.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        code: ErrorCode,
        /// The peer has done it.
        by_peer: bool,
    },
    /// The stream has [`room`](Connection::room) again.
    Room {
        /// The stream.
        stream: u32,
    },
    /// A server has taken many frames: others should have their turn. Small frames may be very many in few bytes.
    Pause,
    /// The peer answered a [`ping`](Connection::ping).
    Pong,
    /// The peer is going away: it does nothing about streams above this one.
    GoAway {
        /// The last stream it may have looked at.
        last: u32,
        /// Why.
        code: ErrorCode,
        /// What it says of that, of which no more is kept than a line.
        reason: Bytes,
    },
}

impl<T> Connection<T> {
    /// Bytes of a header block of which more frames are to come.
    pub fn buffered(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bytes.len())
    }

    /// Bytes of what is remembered of the peer's header blocks.
    pub fn remembered(&self) -> usize {
        self.decoder.held()
    }

    /// Bytes that wait for the peer's windows.
    pub fn queued(&self) -> usize {
        self.queued
    }
}

impl<T: Default> Connection<T> {
    /// The server's side of a connection that has just been accepted.
    pub fn server(config: Arc<Config>) -> Self {
        Self::new(Role::Server, config)
    }

    /// The server's side of a connection that was one of HTTP/1 (RFC 7540, §3.2). The request that asked for HTTP/2 is
    /// stream 1, of which nothing more comes; its answer must wait until the connection was
    /// [greeted](Self::greet).
    pub fn upgraded(config: Arc<Config>, settings: Settings) -> Self {
        let mut connection = Self::server(config);
        connection.peer = settings.0;
        connection.encoder.resize(connection.peer.table);
        let window = connection.config.window;
        connection.streams.insert(UPGRADED, Stream::new(State::RemoteDone, connection.peer.window, window));
        connection.last_theirs = UPGRADED;
        connection
    }

    /// The client's side of a connection that has just been made.
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
            receive_window: DEFAULT_WINDOW.into(),
            credit: 0,
            unread: 0,
            withheld: 0,
            block: None,
            guard: AbuseGuard::default(),
            leaving: ShutdownState::No,
            announced: None,
            pings: 0,
            events: VecDeque::new(),
            taken: 0,
            wanted: 0,
            config,
        }
    }

    /// Takes the next event out of `inbox`, or `None` when it needs more bytes.
    ///
    /// # Errors
    ///
    /// A [`Violation`] ends the connection; the GOAWAY that says why is in `out`.
    pub fn next_event(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Result<Option<Event>, Violation> {
        self.greet(out);
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if let Some(flood) = self.guard.judge(self.config.resets) {
                return Err(self.give_up(ErrorCode::ENHANCE_YOUR_CALM, flood, ViolationKind::Flood, out));
            }
            if self.taken >= TURN && self.role == Role::Server && !inbox.is_empty() {
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

    /// How many bytes the inbox must hold in all before the next event can come; 0 when unknown.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Whether the peer has begun something that is not whole, however little of it lies in the inbox: the
    /// connection, or a header block.
    pub fn mid_message(&self) -> bool {
        self.opening != PrefaceState::Open || self.block.is_some()
    }

    /// The largest header list that the peer takes, as far as it has said so.
    pub fn largest_list(&self) -> usize {
        self.peer.header_list
    }

    /// Gives an event out before what is in the inbox.
    pub(crate) fn queue_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// How many streams are open.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// What header blocks are written with; each must be sent before the next is begun.
    pub fn encoder(&mut self) -> &mut Encoder {
        &mut self.encoder
    }

    /// How many streams this side may have open at once: the peer's setting.
    pub fn concurrency(&self) -> usize {
        self.peer.streams
    }

    /// Says our settings, once. Everything else that is sent or taken does it too, but for answers.
    pub fn greet(&mut self, out: &mut Outbox) {
        if self.opening != PrefaceState::Silent {
            return;
        }
        self.opening = PrefaceState::Greeted;
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
            (settings::MAX_FRAME_SIZE, config.longest_frame() as u32),
        ];
        // The usual size of a frame need not be said.
        let said = if config.longest_frame() > DEFAULT_FRAME { &all[..] } else { &all[..3] };
        frame::settings(buffer, said);
        if let Some(more) = config.connection_window.checked_sub(DEFAULT_WINDOW).filter(|more| *more > 0) {
            frame::window_update(buffer, 0, more);
            self.receive_window += i64::from(more);
        }
    }

    /// Takes one frame; `None` when it is not all here.
    fn take_frame(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Result<Option<FrameOutcome>, Fault> {
        self.wanted = 0;
        if self.opening == PrefaceState::Greeted && !self.take_preface(inbox)? {
            return Ok(None);
        }
        let Some(header) = Header::read(inbox) else { return Ok(None) };
        self.check_order(header)?;
        if header.length > self.config.longest_frame() {
            return Err(self.too_long(header.length));
        }
        let whole = frame::HEADER + header.length;
        if inbox.len() < whole {
            self.wanted = whole;
            return Ok(None);
        }
        if header.kind == frame::DATA {
            inbox.advance(frame::HEADER);
            let payload = inbox.split_to(header.length);
            return self.data_frame(header, payload, out).map(Some);
        }
        let mut fault = None;
        let mut taken = FrameOutcome::Nothing;
        match self.control(header, &inbox[frame::HEADER..whole], out) {
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

    #[cold]
    fn too_long(&self, length: usize) -> Fault {
        let limit = self.config.longest_frame();
        let why = format!("a frame of {length} bytes exceeds the limit of {limit}");
        Fault::TooLarge(ErrorCode::FRAME_SIZE_ERROR, why)
    }

    /// A client begins with fixed bytes (RFC 9113, §3.4).
    fn take_preface(&mut self, inbox: &mut BytesMut) -> Result<bool, Fault> {
        let n = inbox.len().min(frame::PREFACE.len());
        if inbox[..n] != frame::PREFACE[..n] {
            return Err(connection(ErrorCode::PROTOCOL_ERROR, "not the preface of HTTP/2"));
        }
        if n < frame::PREFACE.len() {
            return Ok(false);
        }
        inbox.advance(n);
        self.opening = PrefaceState::Prefaced;
        Ok(true)
    }

    /// The first frame is SETTINGS, and nothing comes between the frames of a header block (§3.4, §4.3).
    fn check_order(&mut self, header: Header) -> Result<(), Fault> {
        if self.opening == PrefaceState::Prefaced {
            if header.kind != frame::SETTINGS || header.has(frame::ACK) {
                return Err(connection(ErrorCode::PROTOCOL_ERROR, "the first frame is not SETTINGS"));
            }
            self.opening = PrefaceState::Open;
        }
        let expected = self.block.as_ref().map(|block| (frame::CONTINUATION, block.stream));
        match expected {
            Some(expected) if (header.kind, header.stream) != expected => {
                Err(connection(ErrorCode::PROTOCOL_ERROR, "another frame inside of a header block"))
            }
            _ => Ok(()),
        }
    }

    /// Resets a stream for what the peer sent on it.
    #[cold]
    fn refuse(&mut self, stream: u32, code: ErrorCode, out: &mut Outbox) -> Option<Event> {
        // That we take no more says nothing of the peer by itself; where it does, it was counted.
        let blames = !matches!(code, ErrorCode::REFUSED_STREAM | ErrorCode::NO_ERROR);
        self.guard.resets += u32::from(blames);
        frame::reset(out.buffer(), stream, code);
        let known = self.forget(stream, CloseReason::ByUs);
        known.then_some(Event::Reset { stream, code, by_peer: false })
    }

    #[cold]
    fn give_up(&mut self, code: ErrorCode, why: &str, kind: ViolationKind, out: &mut Outbox) -> Violation {
        self.abort(code, why, out);
        Violation::new(why).of_kind(kind)
    }

    /// Says that the connection ends at once, and why.
    #[cold]
    pub fn abort(&mut self, code: ErrorCode, why: &str, out: &mut Outbox) {
        self.greet(out);
        // It may not be higher than was said before (RFC 9113, §6.8).
        let last = match self.leaving {
            ShutdownState::Last(last) => last,
            ShutdownState::No | ShutdownState::Announced => self.last_theirs,
        };
        frame::go_away(out.buffer(), last, code, why);
    }

    /// Forgets a stream. Returns whether there was one.
    pub(super) fn forget(&mut self, id: u32, how: CloseReason) -> bool {
        self.closed.add(id, how);
        let Some(stream) = self.streams.remove(id) else { return false };
        if stream.blocked {
            self.blocked.retain(|blocked| *blocked != id);
        }
        self.queued -= stream.queued;
        self.ending -= usize::from(stream.is_ending());
        self.unread -= stream.unread.min(self.unread);
        let released = stream.unread.min(self.withheld);
        self.withheld -= released;
        self.release(released);
        if how == CloseReason::Done {
            self.guard.resets = self.guard.resets.saturating_sub(1);
        }
        true
    }
}

/// What became of a frame.
pub(super) enum FrameOutcome {
    Nothing,
    Event(Event),
}

//! Processing of received frames (RFC 9113, §6).

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use polyrpc_core::Outbox;

use super::closed_streams::CloseReason;
use super::connection::{
    Block, Config, Connection, Event, FrameOutcome, HEADER_BYTES_PER_FRAME_COST, PrefaceState,
};
use super::frame::{self, Header};
use super::go_away::GO_AWAY_PING;
use super::hpack::{DecodeError, Fields};
use super::message::{Kind, ParsedHeaders};
use super::settings::{DEFAULT_FRAME, MAX_WINDOW};
use super::status::{ErrorCode, Fault, connection_error, stream_error};
use super::stream::{Role, State, Stream};

/// CONTINUATION frames allowed beyond those that the longest allowed block needs.
const MAX_EXTRA_CONTINUATIONS: usize = 32;

/// How many resets a request with a header list above the limit counts as: decoding it costs as much.
const OVERSIZED_LIST_COST: u32 = 8;

/// Number of streams whose windows are changed at about the cost of one frame.
const WINDOWS_PER_FRAME: u32 = 32;

/// Consecutive empty DATA frames allowed on a stream.
const MAX_EMPTY: u32 = 100;

const IDLE_DATA: &str = "DATA on an idle stream";
const BEYOND_WINDOW: &str = "more data than the window allows";

/// Payload of our PING that checks whether the peer is alive.
pub(super) const KEEPALIVE_PING: [u8; 8] = *b"polyrpc?";

impl<T: Default> Connection<T> {
    /// Processes a frame other than DATA.
    pub(super) fn handle_control(
        &mut self,
        header: Header,
        payload: &[u8],
        out: &mut Outbox,
    ) -> Result<FrameOutcome, Fault> {
        match header.kind {
            frame::HEADERS => return self.handle_headers(header, payload),
            frame::CONTINUATION => return self.handle_continuation(header, payload),
            frame::WINDOW_UPDATE => self.handle_window_update(header, payload, out)?,
            frame::RST_STREAM => return self.handle_reset(header, payload),
            frame::PING => return self.handle_ping(header, payload, out),
            frame::SETTINGS => self.handle_settings(header, payload, out)?,
            frame::GOAWAY => return self.handle_go_away(header, payload),
            frame::PRIORITY => self.handle_priority(header, payload)?,
            frame::PUSH_PROMISE => {
                return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "PUSH_PROMISE was not allowed"));
            }
            // §5.5: unknown frame types are ignored.
            _ => self.guard.burst += 1,
        }
        Ok(FrameOutcome::Nothing)
    }

    /// §6.1. Counts a DATA frame, and returns the part of its payload to deliver; `None` if it is discarded. `first` is
    /// the first byte of the payload, which is the length of the padding if there is any.
    ///
    /// The payload itself stays with the caller, who needs it next.
    pub(super) fn handle_data(
        &mut self,
        header: Header,
        first: Option<u8>,
        out: &mut Outbox,
    ) -> Result<Option<Range<usize>>, Fault> {
        let id = header.stream;
        self.check_not_idle(id, IDLE_DATA)?;
        self.count_data(header.length)?;
        let data = data_range(header, first).inspect_err(|_| self.release(header.length))?;
        let padding = header.length - data.len();
        let end = header.has(frame::END_STREAM);
        let Some(known) = self.streams.get_mut(id) else {
            self.release(header.length);
            return self.handle_closed_frame(id, header.length).map(|()| None);
        };
        if let Err(fault) = count_on_stream(known, header, data.len()) {
            self.release(header.length);
            return Err(fault);
        }
        if data.is_empty() && !end {
            known.empty_frames += 1;
            let is_flood = known.empty_frames > MAX_EMPTY;
            self.release(padding);
            if is_flood {
                return Err(connection_error(ErrorCode::ENHANCE_YOUR_CALM, "too many empty DATA frames"));
            }
            self.credit_stream(id, padding, out);
            return Ok(None);
        }
        known.empty_frames = 0;
        if !known.is_read(self.role) {
            return self.discard_late_data(header, end).map(|()| None);
        }
        known.unread += data.len();
        self.unread += data.len();
        known.full_frames = known.full_frames.saturating_add(u8::from(header.length >= DEFAULT_FRAME));
        self.release(padding);
        if self.unread <= self.config.connection_window as usize {
            // A slow stream is held back by its own window; the other streams go on.
            self.release(data.len());
        } else {
            self.withheld += data.len();
        }
        if end {
            self.close_remote(id);
        } else if padding > 0 {
            self.credit_stream(id, padding, out);
        }
        Ok(Some(data))
    }

    /// The request was answered before its end: the rest of it is discarded. A peer that keeps sending is asked to stop
    /// (§8.1) once the whole response was sent; until then it may use the rest of its window.
    fn discard_late_data(&mut self, header: Header, end: bool) -> Result<(), Fault> {
        let id = header.stream;
        self.release(header.length);
        let Some(known) = self.streams.get(id) else { return Ok(()) };
        let is_half_full = known.receive_window < i64::from(known.window / 2);
        if end {
            self.close_remote(id);
        } else if known.state == State::LocalDone && is_half_full {
            return Err(stream_error(id, ErrorCode::NO_ERROR));
        }
        Ok(())
    }

    /// §6.2
    fn handle_headers(&mut self, header: Header, payload: &[u8]) -> Result<FrameOutcome, Fault> {
        let id = header.stream;
        if id == 0 {
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "HEADERS without a stream"));
        }
        let mut block = unpad_slice(header, payload)?;
        let mut fault = None;
        if header.has(frame::PRIORITIZED) {
            let Some((&[s0, s1, s2, s3, _], rest)) = block.split_first_chunk::<5>() else {
                return Err(connection_error(
                    ErrorCode::FRAME_SIZE_ERROR,
                    "HEADERS too short for its priority",
                ));
            };
            if u32::from_be_bytes([s0, s1, s2, s3]) & frame::STREAM_ID_MASK == id {
                fault = Some(ErrorCode::PROTOCOL_ERROR);
            }
            block = rest;
        }
        let longest = self.config.longest_block();
        if block.len() > longest.max(DEFAULT_FRAME) {
            return Err(block_too_long(longest, self.config.header_list));
        }
        let end = header.has(frame::END_STREAM);
        if header.has(frame::END_HEADERS) {
            return self.handle_header_block(id, end, fault, block);
        }
        self.block = Some(Block { stream: id, end, fault, bytes: block.to_vec(), frames: 0 });
        Ok(FrameOutcome::Nothing)
    }

    /// §6.10
    fn handle_continuation(&mut self, header: Header, payload: &[u8]) -> Result<FrameOutcome, Fault> {
        let Some(block) = &mut self.block else {
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "CONTINUATION without HEADERS"));
        };
        block.frames += 1;
        let longest = self.config.longest_block();
        if block.bytes.len() + payload.len() > longest {
            return Err(block_too_long(longest, self.config.header_list));
        }
        // As many full frames as the longest block needs, and some that are not full.
        if block.frames as usize > MAX_EXTRA_CONTINUATIONS + longest / DEFAULT_FRAME {
            return Err(connection_error(ErrorCode::ENHANCE_YOUR_CALM, "a header block of too many frames"));
        }
        block.bytes.extend_from_slice(payload);
        if !header.has(frame::END_HEADERS) {
            return Ok(FrameOutcome::Nothing);
        }
        let Some(Block { stream, end, fault, bytes, .. }) = self.block.take() else {
            return Ok(FrameOutcome::Nothing);
        };
        self.handle_header_block(stream, end, fault, &bytes)
    }

    /// Processes a complete header block. It is decoded whatever happens to its stream: both sides share the table.
    fn handle_header_block(
        &mut self,
        id: u32,
        end: bool,
        fault: Option<ErrorCode>,
        block: &[u8],
    ) -> Result<FrameOutcome, Fault> {
        let cost = block.len() / HEADER_BYTES_PER_FRAME_COST;
        self.taken += cost as u32;
        let list = match self.decoder.decode(block) {
            Err(DecodeError::Broken) => {
                return Err(connection_error(ErrorCode::COMPRESSION_ERROR, "a malformed header block"));
            }
            Err(DecodeError::TooCostly) => return Err(list_too_costly(self.config.header_list)),
            Ok(fields) => List { fields, fault, oversized: None },
            Err(DecodeError::TooLarge { size, fields }) => List { fields, fault, oversized: Some(size) },
        };
        match self.role {
            _ if self.streams.get(id).is_some() => self.handle_later_block(id, end, list),
            Role::Server => self.handle_request(id, end, list),
            Role::Client => {
                self.check_not_idle(id, "HEADERS on an idle stream")?;
                self.handle_closed_frame(id, cost).map(|()| FrameOutcome::Nothing)
            }
        }
    }

    /// Handles the headers of a request that opens a stream.
    fn handle_request(&mut self, id: u32, end: bool, list: List) -> Result<FrameOutcome, Fault> {
        if id.is_multiple_of(2) {
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "a client's stream with an even id"));
        }
        if self.is_beyond_go_away(id) {
            // Opened after the last stream named in our GOAWAY. The peer may not have read it yet; once it
            // has, it can retry the request elsewhere.
            self.last_theirs = self.last_theirs.max(id);
            return self.take_late(0).map(|()| FrameOutcome::Nothing);
        }
        if id <= self.last_theirs {
            return match self.closed.close_reason(id) {
                Some(_) => self.handle_closed_frame(id, 0).map(|()| FrameOutcome::Nothing),
                None => Err(connection_error(ErrorCode::PROTOCOL_ERROR, "a stream id below an earlier one")),
            };
        }
        self.last_theirs = id;
        if self.streams.len() >= self.config.streams as usize {
            self.guard.resets += u32::from(self.has_learned_limit(id));
            return Err(stream_error(id, ErrorCode::REFUSED_STREAM));
        }
        if self.exceeds_queue_limit() {
            self.guard.refused += 1;
            return Err(stream_error(id, ErrorCode::REFUSED_STREAM));
        }
        let fields = match list {
            List { fault: Some(code), .. } => return Err(stream_error(id, code)),
            List { fields, oversized: Some(size), .. } => {
                // The dropped fields may include those that select the method. The request is answered, and its body
                // discarded.
                self.insert(id, end, None);
                self.guard.resets = self.guard.resets.saturating_add(OVERSIZED_LIST_COST);
                return Ok(FrameOutcome::Event(Event::Oversized { stream: id, head: true, fields, size }));
            }
            List { fields, .. } => fields,
        };
        let Ok(ParsedHeaders { kind: Kind::Request, length }) = fields.meaning() else {
            return Err(stream_error(id, ErrorCode::PROTOCOL_ERROR));
        };
        if end && length.is_some_and(|length| length > 0) {
            return Err(stream_error(id, ErrorCode::PROTOCOL_ERROR));
        }
        self.insert(id, end, length);
        Ok(FrameOutcome::Event(Event::Headers { stream: id, fields, end }))
    }

    /// Adds a stream that the peer opened with request headers.
    fn insert(&mut self, id: u32, end: bool, length: Option<u64>) {
        let state = if end { State::RemoteDone } else { State::Open };
        let mut opened = Stream::new(state, self.peer.window, self.initial_window);
        (opened.headed, opened.expected) = (true, length);
        self.streams.insert(id, opened);
    }

    /// Whether the peer must know how many streams it may open: before that, exceeding the limit is not its fault. A
    /// well-behaved peer reads our SETTINGS long before it has opened so many.
    fn has_learned_limit(&self, id: u32) -> bool {
        self.acknowledged || id / 2 > self.config.streams.saturating_mul(4)
    }

    /// Whether so much is queued for the peer's windows that new requests are refused: if the first `unsent`
    /// bytes of each stream together reach `unsent_in_all`, or all queued bytes reach `max_unsent`. Every
    /// connection may have a few long responses, and they block other requests no more than short ones do.
    fn exceeds_queue_limit(&self) -> bool {
        let Config { unsent, unsent_in_all, max_unsent, .. } = *self.config;
        if self.queued < unsent_in_all {
            return false;
        }
        let counted = || self.streams.iter().map(|stream| stream.queued.min(unsent)).sum::<usize>();
        self.queued >= max_unsent || counted() >= unsent_in_all
    }

    /// Takes the WINDOW_UPDATE by which a client widens the window of the stream that it has just opened. Returns
    /// `false` if it is something else, or would be an error, which is reported after the event of the stream.
    #[cold]
    pub(super) fn take_first_window(&mut self, id: u32, inbox: &mut BytesMut) -> bool {
        let Some(header) = Header::read(inbox) else { return false };
        let Some((payload, _)) = inbox[frame::HEADER..].split_first_chunk::<4>() else { return false };
        let increment = u32::from_be_bytes(*payload) & frame::INCREMENT_MASK;
        let Some(stream) = self.streams.get_mut(id).filter(|_| header.length == 4 && increment > 0) else {
            return false;
        };
        let window = stream.send_window + i64::from(increment);
        if window > MAX_WINDOW.into() {
            return false;
        }
        stream.send_window = window;
        self.taken += 1;
        inbox.advance(frame::HEADER + 4);
        true
    }

    /// Handles a block on an open stream: response headers or trailers.
    fn handle_later_block(&mut self, id: u32, end: bool, list: List) -> Result<FrameOutcome, Fault> {
        let Some(known) = self.streams.get_mut(id) else { return Ok(FrameOutcome::Nothing) };
        if !known.receives() {
            return Err(stream_error(id, ErrorCode::STREAM_CLOSED));
        }
        let malformed = || stream_error(id, ErrorCode::PROTOCOL_ERROR);
        let List { fields, fault, oversized } = list;
        if let Some(code) = fault {
            return Err(stream_error(id, code));
        }
        if let Some(size) = oversized {
            let head = !std::mem::replace(&mut known.headed, true);
            match end {
                true => self.close_remote(id),
                false if head => {}
                false => return Err(malformed()),
            }
            return Ok(FrameOutcome::Event(Event::Oversized { stream: id, head, fields, size }));
        }
        let meaning = fields.meaning().map_err(|_| malformed())?;
        if known.headed {
            if meaning.kind != Kind::Trailers || !end || known.expected.is_some_and(|rest| rest > 0) {
                return Err(malformed());
            }
            self.close_remote(id);
            return Ok(FrameOutcome::Event(Event::Trailers { stream: id, fields }));
        }
        match meaning.kind {
            // Several interim responses may precede the final one (§8.1).
            Kind::Response(100..=199) if !end => {
                self.guard.burst += 1;
                Ok(FrameOutcome::Nothing)
            }
            Kind::Response(200..) => {
                (known.headed, known.expected) = (true, meaning.length.filter(|_| !end));
                if end {
                    self.close_remote(id);
                }
                Ok(FrameOutcome::Event(Event::Headers { stream: id, fields, end }))
            }
            _ => Err(malformed()),
        }
    }

    /// §6.3
    fn handle_priority(&mut self, header: Header, payload: &[u8]) -> Result<(), Fault> {
        self.guard.burst += 1;
        if header.stream == 0 {
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "PRIORITY without a stream"));
        }
        let Some(&[s0, s1, s2, s3, _]) = payload.as_array::<5>() else {
            return Err(self.wrong_priority(header.stream, ErrorCode::FRAME_SIZE_ERROR));
        };
        if u32::from_be_bytes([s0, s1, s2, s3]) & frame::STREAM_ID_MASK == header.stream {
            return Err(self.wrong_priority(header.stream, ErrorCode::PROTOCOL_ERROR));
        }
        Ok(())
    }

    /// Returns a stream error, unless the stream is idle: an idle stream cannot be reset (§6.4).
    fn wrong_priority(&self, id: u32, code: ErrorCode) -> Fault {
        const WHY: &str = "a wrong PRIORITY on an idle stream";
        self.check_not_idle(id, WHY).map_or_else(|_| connection_error(code, WHY), |()| stream_error(id, code))
    }

    /// §6.4
    fn handle_reset(&mut self, header: Header, payload: &[u8]) -> Result<FrameOutcome, Fault> {
        let id = header.stream;
        let Some(code) = payload.as_array::<4>() else {
            return Err(connection_error(ErrorCode::FRAME_SIZE_ERROR, "RST_STREAM of the wrong length"));
        };
        self.check_not_idle(id, "RST_STREAM on an idle stream")?;
        if self.role == Role::Server
            && self.streams.get(id).is_some_and(|known| known.state == State::LocalDone)
        {
            // The response is complete: a caller need not send the rest of a request that failed.
            self.forget(id, CloseReason::Done);
            return Ok(FrameOutcome::Nothing);
        }
        if self.is_beyond_go_away(id) {
            return Ok(FrameOutcome::Nothing);
        }
        // A reset is cheap for its sender, and each one may have started work here.
        self.guard.resets += u32::from(self.role == Role::Server);
        if !self.forget(id, CloseReason::ByPeer) {
            return Ok(FrameOutcome::Nothing);
        }
        let code = ErrorCode(u32::from_be_bytes(*code));
        Ok(FrameOutcome::Event(Event::Reset { stream: id, code, by_peer: true }))
    }

    /// §6.5
    fn handle_settings(&mut self, header: Header, payload: &[u8], out: &mut Outbox) -> Result<(), Fault> {
        self.guard.burst += 1;
        if header.stream != 0 {
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "SETTINGS on a stream"));
        }
        if header.has(frame::ACK) {
            self.acknowledged = true;
            return match payload {
                [] => Ok(()),
                _ => Err(connection_error(ErrorCode::FRAME_SIZE_ERROR, "an acknowledgement with settings")),
            };
        }
        let before = self.peer.window;
        self.peer.read(payload)?;
        if self.role == Role::Client && self.peer.push {
            // §6.5.2: a server must not enable push.
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "ENABLE_PUSH from a server"));
        }
        self.encoder.resize(self.peer.table);
        frame::settings_ack(out.buffer());
        match i64::from(self.peer.window) - i64::from(before) {
            0 => Ok(()),
            change => self.change_windows(change),
        }
    }

    /// Changes the windows of all streams. Queued data is sent after the frames in the inbox were read
    /// ([`flush_grown`](Self::flush_grown)).
    fn change_windows(&mut self, change: i64) -> Result<(), Fault> {
        self.guard.change_windows();
        self.taken += self.streams.len() as u32 / WINDOWS_PER_FRAME;
        for known in self.streams.iter_mut() {
            known.send_window += change;
            if known.send_window > MAX_WINDOW.into() {
                return Err(connection_error(ErrorCode::FLOW_CONTROL_ERROR, "a window beyond its maximum"));
            }
        }
        self.grown |= change > 0;
        Ok(())
    }

    /// §6.7
    fn handle_ping(
        &mut self,
        header: Header,
        payload: &[u8],
        out: &mut Outbox,
    ) -> Result<FrameOutcome, Fault> {
        self.guard.burst += 1;
        if header.stream != 0 {
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "PING on a stream"));
        }
        let Some(payload) = payload.as_array::<8>() else {
            return Err(connection_error(ErrorCode::FRAME_SIZE_ERROR, "PING of the wrong length"));
        };
        if !header.has(frame::ACK) {
            frame::ping(out.buffer(), *payload, true);
            return Ok(FrameOutcome::Nothing);
        }
        match *payload {
            GO_AWAY_PING => {
                self.send_final_go_away(out);
                Ok(FrameOutcome::Nothing)
            }
            // A PING acknowledgement without a pending PING is ignored.
            KEEPALIVE_PING if self.pings > 0 => {
                self.pings -= 1;
                Ok(FrameOutcome::Event(Event::Pong))
            }
            _ => Ok(FrameOutcome::Nothing),
        }
    }

    /// §6.9
    fn handle_window_update(
        &mut self,
        header: Header,
        payload: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        let id = header.stream;
        let Some(increment) = payload.as_array::<4>() else {
            return Err(connection_error(ErrorCode::FRAME_SIZE_ERROR, "WINDOW_UPDATE of the wrong length"));
        };
        let increment = u32::from_be_bytes(*increment) & frame::INCREMENT_MASK;
        let max = i64::from(MAX_WINDOW);
        if id == 0 {
            if increment == 0 {
                return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "a window increment of zero"));
            }
            self.send_window += i64::from(increment);
            if self.send_window > max {
                return Err(connection_error(ErrorCode::FLOW_CONTROL_ERROR, "a window beyond its maximum"));
            }
            self.flush_blocked(out);
            return Ok(());
        }
        self.check_not_idle(id, "WINDOW_UPDATE on an idle stream")?;
        let Some(known) = self.streams.get_mut(id) else { return Ok(()) };
        if increment == 0 {
            return Err(stream_error(id, ErrorCode::PROTOCOL_ERROR));
        }
        known.send_window += i64::from(increment);
        if known.send_window > max {
            return Err(stream_error(id, ErrorCode::FLOW_CONTROL_ERROR));
        }
        self.flush(id, out);
        Ok(())
    }

    /// Closes the peer's half of a stream.
    fn close_remote(&mut self, id: u32) {
        let Some(known) = self.streams.get_mut(id) else { return };
        match known.state {
            State::LocalDone if known.is_flushed() => {
                self.forget(id, CloseReason::Done);
            }
            _ => known.state = State::RemoteDone,
        }
    }

    /// Checks that a stream is not idle: only its opener may use an idle stream (§5.1).
    fn check_not_idle(&self, id: u32, why: &'static str) -> Result<(), Fault> {
        let theirs = (id % 2 == 1) == (self.role == Role::Server);
        let idle = if theirs { id > self.last_theirs } else { id >= self.next_ours };
        if id == 0 || idle {
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, why));
        }
        Ok(())
    }

    /// Handles a frame on a closed stream. `cost`: bytes of DATA, or the frames that decoding the header
    /// block is worth.
    #[cold]
    fn handle_closed_frame(&mut self, id: u32, cost: usize) -> Result<(), Fault> {
        if self.is_beyond_go_away(id) {
            return self.take_late(cost);
        }
        match self.closed.close_reason(id) {
            Some(CloseReason::ByUs) => self.take_late(cost),
            Some(CloseReason::ByPeer) => Err(stream_error(id, ErrorCode::STREAM_CLOSED)),
            // We opened this stream. It was closed long ago: calls may be cancelled faster than the server sees the
            // resets.
            None if self.role == Role::Client => self.take_late(cost),
            Some(CloseReason::Done) | None => {
                Err(connection_error(ErrorCode::STREAM_CLOSED, "a frame on a closed stream"))
            }
        }
    }

    /// Ignores a frame that the peer may have sent before it saw our RST_STREAM or GOAWAY, unless there are more of them
    /// than flow control allows. `cost`: as for [`handle_closed_frame`](Self::handle_closed_frame).
    fn take_late(&mut self, cost: usize) -> Result<(), Fault> {
        match self.guard.take_late(cost) {
            true => Ok(()),
            false => Err(connection_error(ErrorCode::ENHANCE_YOUR_CALM, "too many frames on closed streams")),
        }
    }

    /// Deducts data from the connection's window (§6.9.1).
    pub(super) fn count_data(&mut self, length: usize) -> Result<(), Fault> {
        if self.receive_window < length as i64 {
            return Err(connection_error(ErrorCode::FLOW_CONTROL_ERROR, BEYOND_WINDOW));
        }
        self.receive_window -= length as i64;
        Ok(())
    }

    /// Checks by the header of a DATA frame that its stream was opened and that the connection's window allows it. Its
    /// sender knows both before it begins the frame.
    pub(super) fn check_window(&self, header: Header) -> Result<(), Fault> {
        self.check_not_idle(header.stream, IDLE_DATA)?;
        if self.receive_window < header.length as i64 {
            return Err(connection_error(ErrorCode::FLOW_CONTROL_ERROR, BEYOND_WINDOW));
        }
        Ok(())
    }

    /// Credits `length` bytes to the connection's receive window; [`grant`](Self::grant) announces them.
    pub(super) fn release(&mut self, length: usize) {
        self.credit = self.credit.saturating_add(length as u32);
    }

    /// Sends a WINDOW_UPDATE for the connection, once the credit is worth a frame.
    pub(super) fn grant(&mut self, out: &mut Outbox) {
        if self.opening == PrefaceState::Open && self.credit >= self.config.connection_window / 4 {
            frame::window_update(out.buffer(), 0, self.credit);
            self.receive_window += i64::from(self.credit);
            self.credit = 0;
        }
    }
}

/// A decoded header list.
struct List {
    fields: Arc<Fields>,
    /// The stream is in error, whatever the list contains.
    fault: Option<ErrorCode>,
    /// Size of the whole list, if it exceeds the limit; some fields are missing then.
    oversized: Option<usize>,
}

#[cold]
pub(super) fn block_too_long(longest: usize, list: usize) -> Fault {
    let why = format!(
        "a header block of more than {longest} bytes, four times the limit of {list} bytes for a header list"
    );
    Fault::TooLarge(ErrorCode::ENHANCE_YOUR_CALM, why)
}

#[cold]
fn list_too_costly(limit: usize) -> Fault {
    let why =
        format!("a header list above the limit of {limit} bytes that adds too much to the dynamic table");
    Fault::TooLarge(ErrorCode::ENHANCE_YOUR_CALM, why)
}

/// Deducts data from the window of a stream, which must accept data.
fn count_on_stream<T>(known: &mut Stream<T>, header: Header, length: usize) -> Result<(), Fault> {
    let id = header.stream;
    if !known.receives() {
        return Err(stream_error(id, ErrorCode::STREAM_CLOSED));
    }
    if !known.headed {
        return Err(stream_error(id, ErrorCode::PROTOCOL_ERROR));
    }
    known.receive_window -= header.length as i64;
    if known.receive_window < 0 {
        return Err(stream_error(id, ErrorCode::FLOW_CONTROL_ERROR));
    }
    count_expected(known, id, length, header.has(frame::END_STREAM))
}

/// Checks that `content-length` and the data agree (§8.1.1).
fn count_expected<T>(known: &mut Stream<T>, id: u32, length: usize, end: bool) -> Result<(), Fault> {
    let Some(expected) = known.expected else { return Ok(()) };
    match expected.checked_sub(length as u64) {
        Some(rest) if rest == 0 || !end => {
            known.expected = Some(rest);
            Ok(())
        }
        _ => Err(stream_error(id, ErrorCode::PROTOCOL_ERROR)),
    }
}

/// Returns the part of a DATA frame's payload that is data; `first` is the payload's first byte.
fn data_range(header: Header, first: Option<u8>) -> Result<Range<usize>, Fault> {
    if !header.has(frame::PADDED) {
        return Ok(0..header.length);
    }
    Ok(1..header.length - parse_padding(first, header.length)?)
}

fn unpad_slice(header: Header, payload: &[u8]) -> Result<&[u8], Fault> {
    if !header.has(frame::PADDED) {
        return Ok(payload);
    }
    let padding = parse_padding(payload.first().copied(), payload.len())?;
    Ok(&payload[1..payload.len() - padding])
}

/// Returns the length of the padding at the end of a padded payload of this length; `first` is its first byte.
fn parse_padding(first: Option<u8>, length: usize) -> Result<usize, Fault> {
    match first.map(usize::from) {
        Some(padding) if padding < length => Ok(padding),
        Some(_) => Err(connection_error(ErrorCode::PROTOCOL_ERROR, "more padding than payload")),
        None => Err(connection_error(ErrorCode::FRAME_SIZE_ERROR, "a padded frame without a padding length")),
    }
}

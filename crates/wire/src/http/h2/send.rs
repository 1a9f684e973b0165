//! Sending of frames and flow control of the send side.

use std::mem;

use bytes::Bytes;
use polyrpc_core::Outbox;

use super::closed_streams::CloseReason;
use super::connection::{Connection, Event};
use super::frame;
use super::hpack::Encoder;
use super::receive::KEEPALIVE_PING;
use super::settings::PeerSettings;
use super::status::ErrorCode;
use super::stream::{Role, SendEnd, State, Stream};

/// Maximum data of one DATA frame while other streams wait: this lets them take turns.
const PIECE: usize = 16_384;

/// Maximum data of one DATA frame otherwise, if the peer accepts as much: a large message is read in few reads, into a
/// buffer of its size.
const MAX_PIECE: usize = 1 << 20;

impl<T: Default> Connection<T> {
    /// Whether a stream can be opened now: the peer's limit allows another one and stream identifiers are left.
    pub fn may_open(&self) -> bool {
        self.streams.len() < self.peer.streams && self.next_ours <= frame::MAX_STREAM_ID
    }

    /// Whether streams can be opened on this connection now or later: stream identifiers are left.
    pub fn may_be_used(&self) -> bool {
        self.next_ours <= frame::MAX_STREAM_ID
    }

    /// Opens a stream with a header block. Call it only if [`may_open`](Self::may_open) returns `true`.
    pub fn open(&mut self, block: &[u8], end: bool, out: &mut Outbox) -> u32 {
        self.send_settings(out);
        let id = self.next_ours;
        self.next_ours += 2;
        let state = if end { State::LocalDone } else { State::Open };
        self.streams.insert(id, Stream::new(state, self.peer.window, self.initial_window));
        frame::headers(out.buffer(), id, block, end, self.peer.frame);
        self.widen_window(id, out);
        id
    }

    /// Returns the data stored with a stream, while it is open.
    pub fn data_of(&mut self, id: u32) -> Option<&mut T> {
        self.streams.get_mut(id).map(|stream| &mut stream.data)
    }

    /// Whether any data is queued for the peer's windows.
    pub fn has_queued_data(&self) -> bool {
        self.streams.iter().any(|stream| !stream.is_flushed())
    }

    /// Whether a stream is open.
    pub fn is_open(&self, id: u32) -> bool {
        self.streams.get(id).is_some()
    }

    /// Sends response headers on a stream. Does nothing if this side has already ended the stream.
    pub fn headers(&mut self, id: u32, block: &[u8], end: bool, out: &mut Outbox) {
        if !self.streams.get(id).is_some_and(Stream::sends) {
            return;
        }
        write_block(&mut self.encoder, out, id, block, end, self.peer.frame);
        if end {
            self.close_local(id);
        }
    }

    /// Sends data: `prefix` and `body`, which together are one piece of the message.
    ///
    /// Data that exceeds the peer's windows is queued; see [`has_room`](Self::has_room).
    pub fn data(&mut self, id: u32, prefix: &[u8], body: Bytes, end: bool, out: &mut Outbox) {
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.sends()) else { return };
        let length = prefix.len() + body.len();
        let window = self.send_window.min(stream.send_window);
        let max = longest_piece(self.queued, &self.peer);
        if stream.is_flushed() && length <= max && length as i64 <= window {
            stream.send_window -= length as i64;
            self.send_window -= length as i64;
            let flags = if end { frame::END_STREAM } else { 0 };
            frame::begin(out.buffer(), length, frame::DATA, flags, id);
            out.extend_from_slice(prefix);
            out.body(body);
            if end {
                self.close_local(id);
            }
            return;
        }
        stream.queued += length;
        self.queued += length;
        if !prefix.is_empty() {
            stream.queue.push_back(Bytes::copy_from_slice(prefix));
        }
        if !body.is_empty() || (end && prefix.is_empty()) {
            stream.queue.push_back(body);
        }
        if end {
            stream.last = SendEnd::Data;
            self.ending += usize::from(stream.is_ending());
        }
        self.flush(id, out);
    }

    /// Sends a complete response: headers, `prefix` and `body` as its data, and trailers. Returns the body, and sends
    /// nothing, if any part of it would have to be queued or split. The blocks must not use the dynamic table.
    pub fn answer(
        &mut self,
        id: u32,
        [head, trailers]: [&[u8]; 2],
        prefix: &[u8],
        body: Bytes,
        out: &mut Outbox,
    ) -> Option<Bytes> {
        let length = prefix.len() + body.len();
        let max = longest_piece(self.queued, &self.peer).min(self.send_window.max(0) as usize);
        let is_usual = length.max(head.len()).max(trailers.len()) <= max && !self.encoder.is_resized();
        let takes_it = |stream: &&mut Stream<T>| {
            stream.sends() && stream.is_flushed() && length as i64 <= stream.send_window
        };
        let stream = self.streams.get_mut(id).filter(|_| is_usual).filter(takes_it);
        let Some(stream) = stream else { return Some(body) };
        stream.send_window -= length as i64;
        self.send_window -= length as i64;
        let buffer = out.buffer();
        frame::begin(buffer, head.len(), frame::HEADERS, frame::END_HEADERS, id);
        buffer.extend_from_slice(head);
        frame::begin(buffer, length, frame::DATA, 0, id);
        buffer.extend_from_slice(prefix);
        out.body(body);
        let buffer = out.buffer();
        frame::begin(buffer, trailers.len(), frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, id);
        buffer.extend_from_slice(trailers);
        self.close_local(id);
        None
    }

    /// Ends a stream with trailers after all data. The block must not use the dynamic table, since it may be queued.
    pub fn trailers(&mut self, id: u32, block: &[u8], out: &mut Outbox) {
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.sends()) else { return };
        if !stream.is_flushed() {
            stream.last = SendEnd::Trailers(Bytes::copy_from_slice(block));
            self.ending += 1;
            return;
        }
        write_block(&mut self.encoder, out, id, block, true, self.peer.frame);
        self.close_local(id);
    }

    /// Resets a stream at once, in both directions. No further events are emitted for it.
    pub fn reset(&mut self, id: u32, code: ErrorCode, out: &mut Outbox) {
        if self.forget(id, CloseReason::ByUs) {
            frame::reset(out.buffer(), id, code);
            self.grant(out);
        }
    }

    /// Closes a stream whose message did not arrive in time. If a response was already sent completely, none of it is
    /// lost.
    pub fn stop(&mut self, id: u32, out: &mut Outbox) {
        let is_answered = self.streams.get(id).is_some_and(|stream| stream.state == State::LocalDone);
        let code = if is_answered { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL };
        self.reset(id, code, out);
    }

    /// Asks the peer with a RST_STREAM to stop sending a request that was already answered (RFC 9113, §8.1), if it has
    /// filled half of its window. Shorter requests end by themselves: some peers treat the reset as a failure.
    pub fn stop_if_window_half_full(&mut self, id: u32, out: &mut Outbox) {
        let is_late = |stream: &Stream<T>| {
            stream.state == State::LocalDone && stream.receive_window < i64::from(stream.window / 2)
        };
        if self.streams.get(id).is_some_and(is_late) {
            self.reset(id, ErrorCode::NO_ERROR, out);
        }
    }

    /// Whether the peer may send more data on a stream: neither window is exhausted.
    pub fn may_receive(&self, id: u32) -> bool {
        self.receive_window > 0
            && self.streams.get(id).is_some_and(|stream| stream.receives() && stream.receive_window > 0)
    }

    /// Reports that `length` bytes of a stream's data were consumed: the peer may send as many again.
    pub fn record_consumed(&mut self, id: u32, length: usize, out: &mut Outbox) {
        // Unread data of a closed stream was credited when the stream ended and must not be counted twice.
        if let Some(stream) = self.streams.get_mut(id) {
            let taken = length.min(stream.unread);
            stream.unread -= taken;
            let full_frames = mem::take(&mut stream.full_frames);
            // Otherwise the rest of an answered request is discarded.
            let is_used = self.role == Role::Client || stream.sends();
            self.unread -= taken.min(self.unread);
            let released = taken.min(self.withheld);
            self.withheld -= released;
            self.release(released);
            self.credit_stream(id, taken, out);
            if full_frames > 0 && is_used {
                self.count_full_frames(full_frames, out);
            }
        }
        self.grant(out);
    }

    /// Adds consumed bytes to a stream's credit and sends a WINDOW_UPDATE once it is worth a frame.
    pub(super) fn credit_stream(&mut self, id: u32, length: usize, out: &mut Outbox) {
        let max = self.config.max_window;
        let role = self.role;
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.is_read(role)) else { return };
        stream.credit += length as u32;
        if stream.credit < stream.window / 2 {
            return;
        }
        let mut increment = mem::take(&mut stream.credit);
        // Data is consumed as fast as it arrives: the window is the bottleneck.
        if stream.unread == 0 && stream.window < max {
            let growth = stream.window.min(max - stream.window);
            if self.growth + growth as usize <= MAX_GROWTH {
                self.growth += growth as usize;
                increment += growth;
                stream.window += growth;
            }
        }
        stream.receive_window += i64::from(increment);
        frame::window_update(out.buffer(), id, increment);
    }

    /// Whether a stream accepts more data without exceeding its queue limit. If not, [`Event::Room`] follows.
    pub fn has_room(&self, id: u32) -> bool {
        self.streams.get(id).is_none_or(|stream| stream.has_room(self.config.unsent))
    }

    /// Sends a PING; the peer's answer is reported as [`Event::Pong`].
    pub fn ping(&mut self, out: &mut Outbox) {
        self.send_settings(out);
        self.pings = self.pings.saturating_add(1);
        frame::ping(out.buffer(), KEEPALIVE_PING, false);
    }

    /// Sends the data queued on every stream, as far as the enlarged windows allow: once, however often the peer
    /// changed them. Each stream costs about as much as a frame.
    #[cold]
    pub(super) fn flush_grown(&mut self, out: &mut Outbox) {
        self.grown = false;
        let may_send =
            |(id, stream): (u32, &Stream<T>)| (!stream.is_flushed() && stream.send_window > 0).then_some(id);
        let ids: Vec<u32> = self.streams.iter_with_ids().filter_map(may_send).collect();
        self.taken += ids.len() as u32;
        ids.into_iter().for_each(|id| self.flush(id, out));
    }

    /// Sends the data blocked on the connection's window, stream by stream in turn.
    pub(super) fn flush_blocked(&mut self, out: &mut Outbox) {
        for _ in 0..self.blocked.len() {
            if self.send_window <= 0 {
                return;
            }
            if let Some(id) = self.blocked.pop_front() {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.blocked = false;
                }
                self.flush(id, out);
            }
        }
    }

    /// Sends the data queued on a stream, as far as the windows allow.
    pub(super) fn flush(&mut self, id: u32, out: &mut Outbox) {
        let (unsent, max) = (self.config.unsent, self.peer.frame);
        let Some(stream) = self.streams.get_mut(id) else { return };
        let (before, was_ending, had_room) = (stream.queued, stream.is_ending(), stream.has_room(unsent));
        let longest = longest_piece(self.queued - before, &self.peer);
        let mut ended = false;
        while let Some(piece) = stream.queue.front_mut() {
            let allowed = self.send_window.min(stream.send_window).max(0) as usize;
            let length = piece.len().min(allowed).min(longest);
            if length == 0 && !piece.is_empty() {
                break;
            }
            let sent = piece.split_to(length);
            if piece.is_empty() {
                stream.queue.pop_front();
            }
            ended = stream.queue.is_empty() && stream.last == SendEnd::Data;
            stream.queued -= length;
            self.queued -= length;
            stream.send_window -= length as i64;
            self.send_window -= length as i64;
            self.guard.refused = 0;
            let flags = if ended { frame::END_STREAM } else { 0 };
            frame::begin(out.buffer(), length, frame::DATA, flags, id);
            out.body(sent);
        }
        if stream.queued < before {
            stream.stalled = None;
        }
        self.ending -= usize::from(was_ending && stream.is_flushed());
        if !had_room && stream.has_room(unsent) {
            self.events.push_back(Event::Room { stream: id });
        }
        if !stream.is_flushed() {
            if stream.send_window > 0 && !mem::replace(&mut stream.blocked, true) {
                self.blocked.push_back(id);
            }
            return;
        }
        if let SendEnd::Trailers(block) = mem::replace(&mut stream.last, SendEnd::Unknown) {
            write_block(&mut self.encoder, out, id, &block, true, max);
            ended = true;
        }
        if ended {
            self.close_local(id);
        }
    }

    /// Closes our half of a stream.
    fn close_local(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        match stream.state {
            State::RemoteDone => {
                self.forget(id, CloseReason::Done);
            }
            State::Open | State::LocalDone => stream.state = State::LocalDone,
        }
    }
}

/// Maximum growth of all streams' receive windows together, beyond the announced initial window: that of four streams
/// with the usual limit. Of many that were read fast and no longer are, each would hold its whole window, and use up the
/// connection's.
pub(super) const MAX_GROWTH: usize = 16 << 20;

/// Returns the maximum data of the next frame, given how many bytes of other streams wait for windows.
fn longest_piece(waiting: usize, peer: &PeerSettings) -> usize {
    if waiting == 0 { MAX_PIECE.min(peer.frame) } else { PIECE }
}

/// Writes a header block that does not use the dynamic table. If it is the first one since the peer changed its table
/// size, it starts with the size update all the same (RFC 7541, §4.2): strict decoders close the connection otherwise.
fn write_block(encoder: &mut Encoder, out: &mut Outbox, id: u32, block: &[u8], end: bool, max: usize) {
    if !encoder.is_resized() {
        return frame::headers(out.buffer(), id, block, end, max);
    }
    let mut resized = Vec::with_capacity(block.len() + 8);
    encoder.begin(&mut resized);
    resized.extend_from_slice(block);
    frame::headers(out.buffer(), id, &resized, end, max);
}

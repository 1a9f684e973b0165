//! brpc's streaming_rpc: ordered messages in both directions, attached to an ordinary call (brpc `stream.cpp`,
//! `policy/streaming_rpc_protocol.cpp`).
//!
//! A call carries the ids of the caller's ends of one or more streams; its response, which is sent as the first message
//! of the first stream, carries those of the server's ends. From then on both sides are symmetric, and [`Streams`]
//! holds every end on this side of a connection.

mod client_streams;
mod endpoint;
mod frame;
mod server_streams;
mod window;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use polyrpc_core::Outbox;
use polyrpc_core::session::StreamOptions;

use self::endpoint::{Remote, StreamEndpoint};
use super::frame::Frame;
use super::meta::{FrameType, StreamMeta, StreamSettings};

pub(super) use self::client_streams::ClientStreams;
pub(super) use self::frame::wrap_response;
pub(super) use self::server_streams::{PendingOffer, ServerStreamEvent, ServerStreams};

/// Limits of the streams of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Concurrent streams. 4,096.
    pub streams: usize,
    /// Unread bytes of messages on one stream; a stream that receives more is reset. A single message may be as long as
    /// the message limit allows. 64 MiB: brpc's sender chooses how far it runs ahead, 2 MiB by default.
    pub unread: usize,
    /// Unread bytes over all streams. 128 MiB.
    pub unread_in_all: usize,
    /// Bytes that all streams together may have sent without feedback before their windows shrink; `None`: unlimited.
    /// brpc's flag `socket_max_streams_unconsumed_bytes`, off by default as in brpc.
    pub unconsumed_in_all: Option<usize>,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { streams: 4096, unread: 64 << 20, unread_in_all: 128 << 20, unconsumed_in_all: None }
    }
}

/// The stream ends on this side of a connection, by their local ids.
#[derive(Debug)]
pub(super) struct Streams {
    endpoints: BTreeMap<u64, StreamEndpoint>,
    limits: StreamLimits,
    /// Maximum length of a message in bytes.
    message: usize,
    /// Unread bytes over all streams.
    unread: usize,
    /// Bytes of `unread` that belong to incomplete messages.
    incomplete: usize,
    /// Bytes sent without feedback, over all streams.
    unconsumed: u64,
    /// Events that were not emitted yet.
    events: VecDeque<StreamEvent>,
}

/// An event of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamEvent {
    /// A message was received.
    Message(u64, Bytes),
    /// The peer has closed the stream: it sends no more messages and accepts none.
    Closed(u64),
    /// The stream ended for this reason.
    Reset(u64, CloseReason),
    /// The peer's window has room again.
    Room(u64),
    /// The call with this correlation id gets no valid response.
    Unanswered(u64, CloseReason),
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The peer reset it.
    Reset,
    /// The limit of unread bytes was exceeded.
    TooMuch,
    /// The call's response did not accept the stream.
    NotAccepted,
    /// The data in place of the response is malformed.
    NoResponse,
}

impl Streams {
    pub(super) fn new(limits: StreamLimits, message: usize) -> Self {
        let (endpoints, events) = (BTreeMap::new(), VecDeque::new());
        Self { endpoints, limits, message, unread: 0, incomplete: 0, unconsumed: 0, events }
    }

    pub(super) fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Returns the approximate number of bytes held: incomplete messages, and the state of each stream.
    pub(super) fn held(&self) -> usize {
        self.incomplete
            + self.endpoints.len() * size_of::<(u64, StreamEndpoint)>()
            + self.events.len() * size_of::<StreamEvent>()
    }

    /// Returns the next event.
    pub(super) fn next_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// Adds an end that waits for the response to the call with this correlation id; the response arrives on the
    /// `first` of a call's streams.
    fn open(&mut self, id: u64, options: &StreamOptions, call: u64, first: bool) {
        self.endpoints.insert(id, StreamEndpoint::new_opening(self.window(options), call, first));
    }

    /// Adds an end whose counterpart is known.
    fn open_connected(&mut self, id: u64, options: &StreamOptions, remote: Remote) {
        self.endpoints.insert(id, StreamEndpoint::new_connected(self.window(options), remote));
    }

    fn window(&self, options: &StreamOptions) -> window::Window {
        window::Window::new(options, self.limits.unconsumed_in_all.is_some())
    }

    /// Connects an end to its counterpart and sends feedback on bytes consumed before. `false`: the end no longer
    /// exists.
    fn connect(&mut self, id: u64, remote: Remote, out: &mut Outbox) -> bool {
        let Some(end) = self.endpoints.get_mut(&id) else { return false };
        end.connect(id, remote, out);
        true
    }

    /// Handles a stream's frame.
    pub(super) fn handle_frame(&mut self, frame: Frame, out: &mut Outbox) -> FrameOutcome {
        let Ok(meta) = StreamMeta::read(&frame.meta) else { return FrameOutcome::Nothing };
        let id = meta.stream_id.cast_unsigned();
        match self.endpoints.get(&id) {
            Some(end) if end.is_closing() => return self.handle_after_close(id, meta),
            Some(end) if !end.is_closed() => {}
            _ => return FrameOutcome::Unknown(meta, frame.payload),
        }
        match meta.frame_type {
            FrameType::Data => {
                let response = self.handle_data(id, &meta, frame.payload, out);
                return response.map_or(FrameOutcome::Nothing, FrameOutcome::Response);
            }
            FrameType::Feedback => self.handle_feedback(id, meta.consumed_size.unwrap_or_default()),
            FrameType::Close => self.handle_close(id, out),
            FrameType::Rst => self.handle_reset(id, out),
            FrameType::Unknown => {}
        }
        FrameOutcome::Nothing
    }

    fn handle_data(&mut self, id: u64, meta: &StreamMeta, data: Bytes, out: &mut Outbox) -> Option<Frame> {
        let end = self.endpoints.get_mut(&id)?;
        let awaits_response = end.awaits_response();
        let in_all = self.limits.unread_in_all.max(self.message);
        let fits = end.fits(data.len(), self.message, self.limits.unread)
            && (awaits_response || self.unread + data.len() <= in_all);
        if !fits {
            end.reset(meta.source_stream_id, out);
            self.fail(id, CloseReason::TooMuch);
            return None;
        }
        if !awaits_response {
            self.unread += data.len();
        }
        self.incomplete -= end.incomplete();
        let message = end.join(data, meta.has_continuation == Some(true));
        self.incomplete += end.incomplete();
        let message = message?;
        if !awaits_response {
            self.events.push_back(StreamEvent::Message(id, message));
            return None;
        }
        let response = frame::response(message);
        match &response {
            Some(_) => end.handle_response(),
            None => {
                end.reset(meta.source_stream_id, out);
                self.fail(id, CloseReason::NoResponse);
            }
        }
        response
    }

    fn handle_feedback(&mut self, id: u64, consumed: i64) {
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        let was_full = !end.window.has_room();
        let more = end.window.apply_feedback(consumed);
        if more == 0 {
            return;
        }
        self.unconsumed = self.unconsumed.saturating_sub(more);
        if let Some(limit) = self.limits.unconsumed_in_all {
            end.window.adapt(self.unconsumed > limit as u64);
        }
        if was_full && end.window.has_room() {
            self.events.push_back(StreamEvent::Room(id));
        }
    }

    /// The peer's `CLOSE` is answered with a `CLOSE`, which reaches no stream: brpc's ends all send it when they end.
    /// Messages received before may still be consumed, so that the end is kept until it is released.
    fn handle_close(&mut self, id: u64, out: &mut Outbox) {
        let Some(end) = self.endpoints.get_mut(&id).filter(|end| end.is_connected()) else {
            return self.fail(id, CloseReason::Reset);
        };
        end.write_close(id, out);
        end.handle_close();
        self.events.push_back(StreamEvent::Closed(id));
    }

    /// The peer's `RST` is answered with a `CLOSE` as well, unless there is no counterpart yet.
    fn handle_reset(&mut self, id: u64, out: &mut Outbox) {
        if let Some(end) = self.endpoints.get(&id) {
            end.write_close(id, out);
        }
        self.fail(id, CloseReason::Reset);
    }

    /// Removes a failed stream and emits the event.
    fn fail(&mut self, id: u64, reason: CloseReason) {
        let Some(end) = self.forget(id) else { return };
        if let Some(call) = end.awaited_call() {
            self.events.push_back(StreamEvent::Unanswered(call, reason));
        }
        self.events.push_back(StreamEvent::Reset(id, reason));
    }

    /// Sends a message, whether there is room or not.
    pub(super) fn send(&mut self, id: u64, message: Bytes, out: &mut Outbox) {
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        let before = end.window.in_flight();
        end.send(id, message, out);
        self.unconsumed += end.window.in_flight() - before;
    }

    /// Whether the peer's window has room. A stream whose peer accepts no messages always has room.
    pub(super) fn has_room(&self, id: u64) -> bool {
        self.endpoints.get(&id).is_none_or(StreamEndpoint::has_room)
    }

    /// Whether messages can be sent: the stream exists and the peer accepts messages.
    pub(super) fn is_writable(&self, id: u64) -> bool {
        self.endpoints.get(&id).is_some_and(StreamEndpoint::is_writable)
    }

    /// Reports that `bytes` bytes of messages were consumed.
    pub(super) fn record_consumed(&mut self, id: u64, bytes: usize, out: &mut Outbox) {
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        self.unread -= end.consume(id, bytes, out);
    }

    /// Releases a stream: with `CLOSE`, or with `RST` if it failed. Nothing is sent if the peer closed it.
    pub(super) fn finish(&mut self, id: u64, is_success: bool, out: &mut Outbox) {
        let Some(end) = self.forget(id) else { return };
        match is_success {
            true => end.write_close(id, out),
            false => end.reset(None, out),
        }
    }

    /// Closes this side of a stream; it ends when the peer has closed it too. Messages received until then are
    /// discarded.
    pub(super) fn close(&mut self, id: u64, out: &mut Outbox) {
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        if end.is_connected() {
            self.unread -= end.unread();
            self.incomplete -= end.incomplete();
            end.close(id, out);
        }
    }

    /// Handles a frame of a stream that this side has closed. brpc answers the peer's `CLOSE` with `RST` then, since
    /// its own end no longer exists.
    fn handle_after_close(&mut self, id: u64, meta: StreamMeta) -> FrameOutcome {
        match meta.frame_type {
            FrameType::Close | FrameType::Rst => {
                self.forget(id);
                self.events.push_back(StreamEvent::Closed(id));
                FrameOutcome::Unknown(meta, Bytes::new())
            }
            FrameType::Data | FrameType::Feedback | FrameType::Unknown => FrameOutcome::Nothing,
        }
    }

    fn forget(&mut self, id: u64) -> Option<StreamEndpoint> {
        let end = self.endpoints.remove(&id)?;
        self.unread -= end.unread();
        self.incomplete -= end.incomplete();
        self.unconsumed = self.unconsumed.saturating_sub(end.window.in_flight());
        Some(end)
    }
}

/// Result of handling a stream's frame.
#[derive(Debug)]
pub(super) enum FrameOutcome {
    /// Nothing beyond the emitted [`StreamEvent`]s; or the meta is malformed, in which case brpc drops the frame
    /// (`ParseStreamingMessage`).
    Nothing,
    /// The response to the call that requested the stream.
    Response(Frame),
    /// A frame of an unknown stream, with its data.
    Unknown(StreamMeta, Bytes),
}

impl FrameOutcome {
    /// Returns the outcome of a frame on a connection without streams.
    pub(super) fn without_streams(frame: Frame) -> Self {
        StreamMeta::read(&frame.meta).map_or(Self::Nothing, |meta| Self::Unknown(meta, frame.payload))
    }

    /// Answers the frame for a server, which expects no responses.
    pub(super) fn answer(self, out: &mut Outbox) {
        if let Self::Unknown(meta, _) = self {
            frame::answer_unknown(&meta, out);
        }
    }

    /// Returns the response for a client. It may be in a frame of an abandoned stream: then the server's end is reset,
    /// since it has no counterpart.
    pub(super) fn response(self, out: &mut Outbox) -> Option<Frame> {
        let (meta, data) = match self {
            Self::Nothing => return None,
            Self::Response(frame) => return Some(frame),
            Self::Unknown(meta, data) => (meta, data),
        };
        let whole = meta.frame_type == FrameType::Data && meta.has_continuation != Some(true);
        let response = frame::response(data).filter(|_| whole);
        if response.is_none() {
            frame::answer_unknown(&meta, out);
        }
        response
    }
}

/// Resets all streams in the peer's settings, since none of them has a counterpart.
pub(super) fn reset_all(settings: &StreamSettings, out: &mut Outbox) {
    settings.ids().for_each(|id| frame::reset(id, out));
}

//! brpc's streaming_rpc: ordered messages, both ways, beside an ordinary call (brpc `stream.cpp`,
//! `policy/streaming_rpc_protocol.cpp`).
//!
//! A call brings the ids of the caller's ends of one or more streams; its response, which travels as the first
//! message of the first of them, brings those of the server's. From then on both sides are the same, which is what
//! [`Streams`] holds: every end on this side of a connection.

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

/// What the streams of one connection may take up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Streams at a time. 4,096.
    pub streams: usize,
    /// Bytes of messages that came on one stream and were not taken; a stream on which more come is reset. A single
    /// message may be as long as any. 64 MiB: brpc's sender chooses by itself how far it is ahead, 2 MiB unless it is
    /// told otherwise.
    pub unread: usize,
    /// The same over all streams. 128 MiB.
    pub unread_in_all: usize,
    /// Bytes that all streams together may have sent and not known to be taken before their windows become smaller;
    /// `None`: any number. brpc's flag `socket_max_streams_unconsumed_bytes`, off as there.
    pub unconsumed_in_all: Option<usize>,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { streams: 4096, unread: 64 << 20, unread_in_all: 128 << 20, unconsumed_in_all: None }
    }
}

/// The ends of streams on this side of a connection, by their ids here.
#[derive(Debug)]
pub(super) struct Streams {
    ends: BTreeMap<u64, StreamEndpoint>,
    limits: StreamLimits,
    /// Bytes that one message may have.
    message: usize,
    /// Bytes that came and were not taken, over all streams.
    unread: usize,
    /// Those of them that are of messages which are not whole.
    incomplete: usize,
    /// Bytes that were sent and are not known to be taken, over all streams.
    unconsumed: u64,
    /// What was found and not given out yet.
    news: VecDeque<StreamEvent>,
}

/// What happened to a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamEvent {
    /// A message has come.
    Message(u64, Bytes),
    /// The peer has closed it: no more comes, and nobody takes what is sent.
    Closed(u64),
    /// It is no more, for this reason.
    Reset(u64, CloseReason),
    /// The peer takes more again.
    Room(u64),
    /// The call with this correlation id gets no response that could be read.
    Unanswered(u64, CloseReason),
}

/// Why a stream is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The peer said so.
    Reset,
    /// More came than may wait.
    TooMuch,
    /// The call was not answered by accepting it.
    NotAccepted,
    /// What came in place of the response is none.
    NoResponse,
}

impl Streams {
    pub(super) fn new(limits: StreamLimits, message: usize) -> Self {
        let (ends, news) = (BTreeMap::new(), VecDeque::new());
        Self { ends, limits, message, unread: 0, incomplete: 0, unconsumed: 0, news }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes that are kept, about: of messages that are not whole, and for each stream.
    pub(super) fn held(&self) -> usize {
        self.incomplete
            + self.ends.len() * size_of::<(u64, StreamEndpoint)>()
            + self.news.len() * size_of::<StreamEvent>()
    }

    /// What happened next.
    pub(super) fn next_event(&mut self) -> Option<StreamEvent> {
        self.news.pop_front()
    }

    /// Adds an end that waits for the response to the call with this correlation id; the `first` of a call's streams
    /// is the one it comes on.
    fn open(&mut self, id: u64, options: &StreamOptions, call: u64, first: bool) {
        self.ends.insert(id, StreamEndpoint::opening(self.window(options), call, first));
    }

    /// Adds an end whose other end is known.
    fn connected(&mut self, id: u64, options: &StreamOptions, remote: Remote) {
        self.ends.insert(id, StreamEndpoint::connected(self.window(options), remote));
    }

    fn window(&self, options: &StreamOptions) -> window::Window {
        window::Window::new(options, self.limits.unconsumed_in_all.is_some())
    }

    /// Gives an end its other one; what was taken before is told. `false`: the end is gone.
    fn connect(&mut self, id: u64, remote: Remote, out: &mut Outbox) -> bool {
        let Some(end) = self.ends.get_mut(&id) else { return false };
        end.connect(id, remote, out);
        true
    }

    /// Takes a stream's frame in.
    pub(super) fn handle_frame(&mut self, frame: Frame, out: &mut Outbox) -> FrameOutcome {
        let Ok(meta) = StreamMeta::read(&frame.meta) else { return FrameOutcome::Nothing };
        let id = meta.stream_id.cast_unsigned();
        match self.ends.get(&id) {
            Some(end) if end.is_closing() => return self.handle_after_close(id, meta),
            Some(end) if !end.is_closed() => {}
            _ => return FrameOutcome::Unknown(meta, frame.payload),
        }
        match meta.frame_type {
            FrameType::Data => {
                let response = self.data(id, &meta, frame.payload, out);
                return response.map_or(FrameOutcome::Nothing, FrameOutcome::Response);
            }
            FrameType::Feedback => self.feedback(id, meta.consumed_size.unwrap_or_default()),
            FrameType::Close => self.closed_by_peer(id, out),
            FrameType::Rst => self.reset_by_peer(id, out),
            FrameType::Unknown => {}
        }
        FrameOutcome::Nothing
    }

    fn data(&mut self, id: u64, meta: &StreamMeta, data: Bytes, out: &mut Outbox) -> Option<Frame> {
        let end = self.ends.get_mut(&id)?;
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
            self.news.push_back(StreamEvent::Message(id, message));
            return None;
        }
        let response = frame::response(message);
        match &response {
            Some(_) => end.has_response(),
            None => {
                end.reset(meta.source_stream_id, out);
                self.fail(id, CloseReason::NoResponse);
            }
        }
        response
    }

    fn feedback(&mut self, id: u64, consumed: i64) {
        let Some(end) = self.ends.get_mut(&id) else { return };
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
            self.news.push_back(StreamEvent::Room(id));
        }
    }

    /// The peer's `CLOSE` is answered with one, which finds nobody there: brpc's ends all say it when they go.
    /// What came before is still to be taken, so that the end is kept until it is let go.
    fn closed_by_peer(&mut self, id: u64, out: &mut Outbox) {
        let Some(end) = self.ends.get_mut(&id).filter(|end| end.is_connected()) else {
            return self.fail(id, CloseReason::Reset);
        };
        end.close(id, out);
        end.closed_by_peer();
        self.news.push_back(StreamEvent::Closed(id));
    }

    /// The peer's `RST` is answered with a `CLOSE` as well, unless there is no other end yet.
    fn reset_by_peer(&mut self, id: u64, out: &mut Outbox) {
        if let Some(end) = self.ends.get(&id) {
            end.close(id, out);
        }
        self.fail(id, CloseReason::Reset);
    }

    /// Ends a stream that is over, whoever knows it already.
    fn fail(&mut self, id: u64, why: CloseReason) {
        let Some(end) = self.forget(id) else { return };
        if let Some(call) = end.awaited_call() {
            self.news.push_back(StreamEvent::Unanswered(call, why));
        }
        self.news.push_back(StreamEvent::Reset(id, why));
    }

    /// Sends a message, whether there is room or not.
    pub(super) fn send(&mut self, id: u64, message: Bytes, out: &mut Outbox) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        let before = end.window.in_flight();
        end.send(id, message, out);
        self.unconsumed += end.window.in_flight() - before;
    }

    /// Whether the peer takes more. Nobody need wait for room where nothing is taken at all.
    pub(super) fn has_room(&self, id: u64) -> bool {
        self.ends.get(&id).is_none_or(StreamEndpoint::has_room)
    }

    /// Whether messages can be sent: the stream is there and the peer wants some.
    pub(super) fn is_writable(&self, id: u64) -> bool {
        self.ends.get(&id).is_some_and(StreamEndpoint::is_writable)
    }

    /// So many bytes of messages were taken.
    pub(super) fn consumed(&mut self, id: u64, bytes: usize, out: &mut Outbox) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        self.unread -= end.consume(id, bytes, out);
    }

    /// Lets a stream go: with `CLOSE`, or with `RST` if it failed. Nothing is said of one that the peer closed.
    pub(super) fn finish(&mut self, id: u64, well: bool, out: &mut Outbox) {
        let Some(end) = self.forget(id) else { return };
        match well {
            true => end.close(id, out),
            false => end.reset(None, out),
        }
    }

    /// Says that this side is done with a stream; it is over when the peer has said so too. What still comes is for
    /// nobody.
    pub(super) fn close(&mut self, id: u64, out: &mut Outbox) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        if end.is_connected() {
            self.unread -= end.unread();
            self.incomplete -= end.incomplete();
            end.close(id, out);
        }
    }

    /// Takes in a frame of a stream that this side has closed. brpc answers the peer's `CLOSE` with `RST` then, since
    /// its own end is gone.
    fn handle_after_close(&mut self, id: u64, meta: StreamMeta) -> FrameOutcome {
        match meta.frame_type {
            FrameType::Close | FrameType::Rst => {
                self.forget(id);
                self.news.push_back(StreamEvent::Closed(id));
                FrameOutcome::Unknown(meta, Bytes::new())
            }
            FrameType::Data | FrameType::Feedback | FrameType::Unknown => FrameOutcome::Nothing,
        }
    }

    fn forget(&mut self, id: u64) -> Option<StreamEndpoint> {
        let end = self.ends.remove(&id)?;
        self.unread -= end.unread();
        self.incomplete -= end.incomplete();
        self.unconsumed = self.unconsumed.saturating_sub(end.window.in_flight());
        Some(end)
    }
}

/// What a stream's frame was.
#[derive(Debug)]
pub(super) enum FrameOutcome {
    /// Nothing but what is told as [`StreamEvent`]; or its meta cannot be read, for which brpc drops it
    /// (`ParseStreamingMessage`).
    Nothing,
    /// The response to the call that asked for the stream.
    Response(Frame),
    /// One of a stream that is not there, with its data.
    Unknown(StreamMeta, Bytes),
}

impl FrameOutcome {
    /// What a frame is where there are no streams.
    pub(super) fn without_streams(frame: Frame) -> Self {
        StreamMeta::read(&frame.meta).map_or(Self::Nothing, |meta| Self::Unknown(meta, frame.payload))
    }

    /// Answers for a server, to whom nobody responds.
    pub(super) fn answer(self, out: &mut Outbox) {
        if let Self::Unknown(meta, _) = self {
            frame::answer_unknown(&meta, out);
        }
    }

    /// The response for a client. It may be in a frame of a stream that was given up: then the server's end must be
    /// told that it has no other.
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

/// Tells the peer that none of the streams in his settings has another end.
pub(super) fn reset_all(settings: &StreamSettings, out: &mut Outbox) {
    settings.ids().for_each(|id| frame::reset(id, out));
}

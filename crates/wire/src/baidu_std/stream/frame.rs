//! Frames of a stream (brpc `policy/streaming_rpc_protocol.cpp`): each type carries the fields that brpc sets in it,
//! and the response to a call with streams is wrapped in one.

use bytes::Bytes;
use polyrpc_core::Outbox;

use crate::baidu_std::frame;
use crate::baidu_std::frame::{Frame, Kind};
use crate::baidu_std::meta::{FrameType, StreamMeta};

/// Appends a message, split into several consecutive frames if one cannot hold it.
pub(super) fn data(to: i64, from: i64, mut message: Bytes, out: &mut Outbox) {
    while message.len() > SEGMENT {
        segment(to, from, message.split_to(SEGMENT), true, out);
    }
    segment(to, from, message, false, out);
}

/// Bytes of a message per frame. brpc's own setting, 512 MiB, exceeds the 64 MiB that brpc's receiver accepts by
/// default (`stream_write_max_segment_size`, `max_body_size`).
const SEGMENT: usize = 32 << 20;

fn segment(to: i64, from: i64, data: Bytes, continues: bool, out: &mut Outbox) {
    let meta = StreamMeta {
        source_stream_id: Some(from),
        frame_type: FrameType::Data,
        has_continuation: Some(continues),
        ..StreamMeta::new(to)
    };
    append(&meta, data.len(), out);
    out.body(data);
}

/// Appends a `FEEDBACK` frame with the total bytes of messages consumed since the stream was opened.
pub(super) fn feedback(to: i64, from: i64, consumed: u64, out: &mut Outbox) {
    let meta = StreamMeta {
        source_stream_id: Some(from),
        frame_type: FrameType::Feedback,
        consumed_size: Some(consumed.cast_signed()),
        ..StreamMeta::new(to)
    };
    append(&meta, 0, out);
}

/// Appends a `CLOSE` frame.
pub(super) fn close(to: i64, from: i64, out: &mut Outbox) {
    let meta =
        StreamMeta { source_stream_id: Some(from), frame_type: FrameType::Close, ..StreamMeta::new(to) };
    append(&meta, 0, out);
}

/// Appends an `RST` frame: the peer's stream has no counterpart, or no longer has one.
pub(super) fn reset(to: i64, out: &mut Outbox) {
    append(&StreamMeta { frame_type: FrameType::Rst, ..StreamMeta::new(to) }, 0, out);
}

/// Answers a frame of an unknown stream: a message is answered with a reset, any other frame is dropped.
#[cold]
pub(super) fn answer_unknown(meta: &StreamMeta, out: &mut Outbox) {
    let is_known = matches!(meta.frame_type, FrameType::Data | FrameType::Close | FrameType::Unknown);
    if let Some(source) = meta.source_stream_id.filter(|_| is_known) {
        reset(source, out);
    }
}

/// Appends the head of the stream's frame that wraps a whole response as its data, as brpc sends it "even if server
/// side failed to create stream" (`SendRpcResponse`). `write` appends the response up to its payload, of which only the
/// length is needed here.
pub(in crate::baidu_std) fn wrap_response(
    to: i64,
    from: Option<i64>,
    payload: usize,
    buffer: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = frame::start_frame(buffer, Kind::Stream);
    let meta = StreamMeta {
        source_stream_id: Some(from.unwrap_or(NO_STREAM)),
        frame_type: FrameType::Data,
        has_continuation: Some(false),
        ..StreamMeta::new(to)
    };
    meta.write(buffer);
    let data = buffer.len();
    write(buffer);
    let size = buffer.len() - data + payload;
    frame::finish(buffer, start, data - start - frame::HEADER, size);
}

/// brpc's `INVALID_STREAM_ID`; 0 is a valid one.
const NO_STREAM: i64 = -1;

/// Parses a stream's message as a response, if it is one.
pub(super) fn response(message: Bytes) -> Option<Frame> {
    Frame::exactly(message).filter(|inner| inner.kind == Kind::Rpc)
}

fn append(meta: &StreamMeta, payload: usize, out: &mut Outbox) {
    let buffer = out.buffer();
    let start = frame::start_frame(buffer, Kind::Stream);
    meta.write(buffer);
    let size = buffer.len() - start - frame::HEADER;
    frame::finish(buffer, start, size, payload);
}

impl StreamMeta {
    /// Creates a meta that only addresses a stream.
    fn new(stream_id: i64) -> Self {
        Self { stream_id, ..Self::default() }
    }
}

//! A stream's frames (brpc `policy/streaming_rpc_protocol.cpp`): each kind carries the fields that brpc sets in it,
//! and a response to a call that brought streams travels inside of one.

use bytes::Bytes;
use polyrpc_core::Outbox;

use crate::baidu_std::frame;
use crate::baidu_std::frame::{Frame, Kind};
use crate::baidu_std::meta::{FrameType, StreamMeta};

/// Appends a message, in several frames if one could not hold it: those lie right behind one another.
pub(super) fn data(to: i64, from: i64, mut message: Bytes, out: &mut Outbox) {
    while message.len() > SEGMENT {
        segment(to, from, message.split_to(SEGMENT), true, out);
    }
    segment(to, from, message, false, out);
}

/// Bytes of a message that one frame holds. brpc's own setting, 512 MiB, is beyond the 64 MiB that brpc's receiver
/// takes by default (`stream_write_max_segment_size`, `max_body_size`).
const SEGMENT: usize = 32 << 20;

fn segment(to: i64, from: i64, data: Bytes, continues: bool, out: &mut Outbox) {
    let meta = StreamMeta {
        source_stream_id: Some(from),
        frame_type: FrameType::Data,
        has_continuation: Some(continues),
        ..StreamMeta::to(to)
    };
    append(&meta, data.len(), out);
    out.body(data);
}

/// Tells how many bytes of messages were taken since the stream began.
pub(super) fn feedback(to: i64, from: i64, consumed: u64, out: &mut Outbox) {
    let meta = StreamMeta {
        source_stream_id: Some(from),
        frame_type: FrameType::Feedback,
        consumed_size: Some(consumed.cast_signed()),
        ..StreamMeta::to(to)
    };
    append(&meta, 0, out);
}

/// Says that the stream is over.
pub(super) fn close(to: i64, from: i64, out: &mut Outbox) {
    let meta =
        StreamMeta { source_stream_id: Some(from), frame_type: FrameType::Close, ..StreamMeta::to(to) };
    append(&meta, 0, out);
}

/// Tells the peer that his stream has no other end, or not any more.
pub(super) fn reset(to: i64, out: &mut Outbox) {
    append(&StreamMeta { frame_type: FrameType::Rst, ..StreamMeta::to(to) }, 0, out);
}

/// Answers a frame of an unknown stream: the sender of a message learns that, anything else is dropped.
#[cold]
pub(super) fn answer_unknown(meta: &StreamMeta, out: &mut Outbox) {
    let tells = matches!(meta.frame_type, FrameType::Data | FrameType::Close | FrameType::Unknown);
    if let Some(source) = meta.source_stream_id.filter(|_| tells) {
        reset(source, out);
    }
}

/// Appends the head of the stream's frame that carries a whole response as its data, as brpc sends it "even
/// if server side failed to create stream" (`SendRpcResponse`). `write` appends the response up to its
/// payload, whose length alone is needed here.
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
        ..StreamMeta::to(to)
    };
    meta.write(buffer);
    let data = buffer.len();
    write(buffer);
    let size = buffer.len() - data + payload;
    frame::finish(buffer, start, data - start - frame::HEADER, size);
}

/// brpc's `INVALID_STREAM_ID`; 0 is a valid one.
const NO_STREAM: i64 = -1;

/// The response that a message of a stream is, if it is one.
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
    /// What says no more than which stream it is for.
    fn to(stream_id: i64) -> Self {
        Self { stream_id, ..Self::default() }
    }
}

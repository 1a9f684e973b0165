//! What a side that knows no streams must know of them: a response may travel inside of a stream's frame,
//! and whoever speaks to an unknown stream is told so (brpc `policy/streaming_rpc_protocol.cpp`).

use super::frame::{self, Frame, Kind};
use super::meta::{FrameType, StreamMeta};
use crate::Outbox;

/// Appends the head of the stream's frame that carries a whole response as its data, as brpc sends it "even
/// if server side failed to create stream" (`SendRpcResponse`). `write` appends the response up to its
/// payload, whose length alone is needed here.
pub(super) fn wrap_response(
    stream_id: i64,
    payload: usize,
    buffer: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = frame::begin(buffer, Kind::Stream);
    not_accepted(stream_id).write(buffer);
    let data = buffer.len();
    write(buffer);
    let size = buffer.len() - data + payload;
    frame::finish(buffer, start, data - start - frame::HEADER, size);
}

fn not_accepted(stream_id: i64) -> StreamMeta {
    StreamMeta {
        stream_id,
        source_stream_id: Some(NO_STREAM),
        frame_type: FrameType::Data,
        has_continuation: Some(false),
    }
}

/// brpc's `INVALID_STREAM_ID`; 0 is a valid one.
const NO_STREAM: i64 = -1;

/// The response that a stream's frame carries, if that is what it carries.
pub(super) fn unwrap_response(frame: &Frame) -> Option<Frame> {
    let meta = StreamMeta::read(&frame.meta).ok()?;
    let whole = meta.frame_type == FrameType::Data && meta.has_continuation != Some(true);
    Frame::exactly(frame.payload.clone()).filter(|inner| whole && inner.kind == Kind::Rpc)
}

/// Answers a stream's frame, every stream being unknown: the sender of a message learns that, anything else
/// is dropped, as is a frame whose meta cannot be parsed (brpc `ParseStreamingMessage`).
#[cold]
pub(super) fn answer_unknown(frame: &Frame, out: &mut Outbox) {
    let Ok(meta) = StreamMeta::read(&frame.meta) else { return };
    let tells = matches!(meta.frame_type, FrameType::Data | FrameType::Close | FrameType::Unknown);
    if let Some(source) = meta.source_stream_id.filter(|_| tells) {
        reset(source, out);
    }
}

/// Tells the peer that his stream has no other end.
pub(super) fn reset(stream_id: i64, out: &mut Outbox) {
    let buffer = out.buffer();
    let start = frame::begin(buffer, Kind::Stream);
    StreamMeta { stream_id, frame_type: FrameType::Rst, ..StreamMeta::default() }.write(buffer);
    let size = buffer.len() - start - frame::HEADER;
    frame::finish(buffer, start, size, 0);
}

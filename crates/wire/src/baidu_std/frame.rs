//! Frame layout: a header of 12 bytes, a meta, a payload. Calls and streams share the layout and differ in the magic
//! (brpc `policy/baidu_rpc_protocol.cpp` `ParseRpcMessage`, `policy/streaming_rpc_protocol.cpp`).

use bytes::{Buf, Bytes, BytesMut};

use polyrpc_core::{Limits, Violation};

use crate::oversized::MAX_DISCARDED;

/// Kind of a frame, given by its magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request or a response.
    Rpc,
    /// A frame of a stream.
    Stream,
}

impl Kind {
    pub(super) const fn magic(self) -> &'static [u8; 4] {
        match self {
            Self::Rpc => b"PRPC",
            Self::Stream => b"STRM",
        }
    }

    fn from_magic(magic: &[u8]) -> Option<Self> {
        [Self::Rpc, Self::Stream].into_iter().find(|kind| kind.magic() == magic)
    }
}

/// A complete frame without its header.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) meta: Bytes,
    pub(super) payload: Bytes,
}

impl Frame {
    /// Parses `bytes` as exactly one frame; `None` if they are anything else.
    pub(super) fn exactly(mut bytes: Bytes) -> Option<Self> {
        let header = Header::read(bytes.first_chunk()?)?;
        let payload = header.body.checked_sub(header.meta)?;
        if bytes.len() != HEADER + header.body {
            return None;
        }
        bytes.advance(HEADER);
        let meta = bytes.split_to(bytes.len() - payload);
        Some(Self { kind: header.kind, meta, payload: bytes })
    }
}

/// Result of parsing the start of the inbox.
#[derive(Debug)]
pub(super) enum NextFrame {
    /// A complete frame, removed from the inbox.
    Whole(Frame),
    /// The start of a frame, with its total length in bytes; 0 while that is unknown.
    Partial(usize),
    /// Not a frame of this protocol; the inbox is unchanged.
    Foreign,
}

/// Removes the next frame from `inbox`, if it is complete.
///
/// `limit` bounds the bytes after the header, like brpc's `max_body_size`.
pub(super) fn take_frame(inbox: &mut BytesMut, limit: usize) -> Result<NextFrame, Violation> {
    let Some(header) = inbox.first_chunk() else {
        return Ok(if may_begin_a_frame(inbox) { NextFrame::Partial(0) } else { NextFrame::Foreign });
    };
    let Some(header) = Header::read(header) else {
        return Ok(NextFrame::Foreign);
    };
    header.check(limit)?;
    let whole = HEADER + header.body;
    if inbox.len() < whole {
        return Ok(NextFrame::Partial(whole));
    }
    inbox.advance(HEADER);
    let meta = inbox.split_to(header.meta).freeze();
    let payload = inbox.split_to(header.body - header.meta).freeze();
    Ok(NextFrame::Whole(Frame { kind: header.kind, meta, payload }))
}

/// A frame that exceeds the limit.
#[derive(Debug)]
pub(super) enum OversizedFrame {
    /// Its meta, removed from the inbox together with the header.
    Head {
        meta: Bytes,
        /// Bytes after the header: the meta and the payload.
        body: usize,
        /// Bytes of the payload, which follow.
        payload: usize,
    },
    /// The meta is incomplete; the inbox must hold this many bytes.
    Partial(usize),
}

/// Removes the start of a frame that exceeds the limit, so that its call can be told; `None` if the connection cannot
/// go on: the frame is a stream's, its meta is too long itself, or the rest of it is too long to skip.
#[cold]
pub(super) fn take_oversized(inbox: &mut BytesMut, limits: &Limits) -> Option<OversizedFrame> {
    let header = Header::read(inbox.first_chunk()?)?;
    let goes_on = header.kind == Kind::Rpc && header.body <= MAX_DISCARDED;
    if !goes_on || header.meta > limits.header.min(limits.message) || header.meta > header.body {
        return None;
    }
    let head = HEADER + header.meta;
    if inbox.len() < head {
        return Some(OversizedFrame::Partial(head));
    }
    inbox.advance(HEADER);
    let meta = inbox.split_to(header.meta).freeze();
    Some(OversizedFrame::Head { meta, body: header.body, payload: header.body - header.meta })
}

fn may_begin_a_frame(start: &[u8]) -> bool {
    let n = start.len().min(4);
    [Kind::Rpc, Kind::Stream].iter().any(|kind| kind.magic()[..n] == start[..n])
}

/// Length of a header in bytes: magic, body size, meta size; the sizes are big-endian.
pub(super) const HEADER: usize = 12;

#[derive(Debug)]
struct Header {
    kind: Kind,
    /// Bytes after the header: the meta and the payload.
    body: usize,
    meta: usize,
}

impl Header {
    /// Parses a header; `None` if the magic does not match.
    fn read(bytes: &[u8; HEADER]) -> Option<Self> {
        let [magic @ .., b0, b1, b2, b3, m0, m1, m2, m3] = bytes;
        Some(Self {
            kind: Kind::from_magic(magic)?,
            body: u32::from_be_bytes([*b0, *b1, *b2, *b3]) as usize,
            meta: u32::from_be_bytes([*m0, *m1, *m2, *m3]) as usize,
        })
    }

    fn check(&self, limit: usize) -> Result<(), Violation> {
        if self.body > limit {
            return Err(Violation::body_too_large(self.body, limit));
        }
        if self.meta > self.body {
            return Err(meta_past_body(self.meta, self.body));
        }
        Ok(())
    }
}

#[cold]
fn meta_past_body(meta: usize, body: usize) -> Violation {
    Violation::new(format!("a meta of {meta} bytes exceeds its body of {body}"))
}

/// Starts a frame at the end of `buffer` with its sizes left open; returns its offset.
pub(super) fn start_frame(buffer: &mut Vec<u8>, kind: Kind) -> usize {
    let start = buffer.len();
    buffer.extend_from_slice(kind.magic());
    buffer.extend_from_slice(&[0; 8]);
    start
}

/// Writes the sizes of the frame at `start`.
pub(super) fn finish(buffer: &mut [u8], start: usize, meta: usize, payload: usize) {
    let size =
        |n: usize| u32::try_from(n).expect("a payload is below 2 GiB and a meta is far below").to_be_bytes();
    buffer[start + 4..start + 8].copy_from_slice(&size(meta + payload));
    buffer[start + 8..start + HEADER].copy_from_slice(&size(meta));
}

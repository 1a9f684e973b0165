//! Frame layout: a header of nine bytes and a payload whose format depends on the type (RFC 9113, §4, §6).
//!
//! ```text
//!  +-----------------------------------------------+
//!  |                 Length (24)                   |
//!  +---------------+---------------+---------------+
//!  |   Type (8)    |   Flags (8)   |
//!  +-+-------------+---------------+-------------------------------+
//!  |R|                 Stream Identifier (31)                      |
//!  +=+=============================================================+
//! ```

use super::status::ErrorCode;

/// Length of a frame header in bytes.
pub(super) const HEADER: usize = 9;

/// The client's connection preface.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITIZED: u8 = 0x20;

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Header {
    /// Parses the header at the start of `bytes`; `None` if it is incomplete.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes.first_chunk::<HEADER>()?;
        Some(Self {
            length: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & STREAM_ID_MASK,
        })
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Bits of a stream identifier; the first bit is reserved.
pub(super) const STREAM_ID_MASK: u32 = 0x7fff_ffff;

/// Highest stream identifier.
pub(super) const MAX_STREAM_ID: u32 = STREAM_ID_MASK;

/// Bits of a window increment; the first bit is reserved.
pub(super) const INCREMENT_MASK: u32 = 0x7fff_ffff;

/// Appends a frame's header.
#[inline]
pub(super) fn begin(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, l0, l1, l2] = (length as u32).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    out.extend_from_slice(&[l0, l1, l2, kind, flags, s0, s1, s2, s3]);
}

/// Appends a header block: a HEADERS frame, and CONTINUATION frames for what exceeds the peer's maximum frame size.
pub(super) fn headers(out: &mut Vec<u8>, stream: u32, mut block: &[u8], end: bool, max: usize) {
    let mut kind = HEADERS;
    let mut flags = if end { END_STREAM } else { 0 };
    while let Some((part, rest)) = block.split_at_checked(max).filter(|(_, rest)| !rest.is_empty()) {
        begin(out, part.len(), kind, flags, stream);
        out.extend_from_slice(part);
        (kind, flags, block) = (CONTINUATION, 0, rest);
    }
    begin(out, block.len(), kind, flags | END_HEADERS, stream);
    out.extend_from_slice(block);
}

pub(super) fn reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    begin(out, 4, RST_STREAM, 0, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(super) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    begin(out, 4, WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(super) fn ping(out: &mut Vec<u8>, payload: [u8; 8], ack: bool) {
    begin(out, 8, PING, if ack { ACK } else { 0 }, 0);
    out.extend_from_slice(&payload);
}

pub(super) fn settings_ack(out: &mut Vec<u8>) {
    begin(out, 0, SETTINGS, ACK, 0);
}

pub(super) fn settings(out: &mut Vec<u8>, values: &[(u16, u32)]) {
    begin(out, values.len() * 6, SETTINGS, 0, 0);
    for (id, value) in values {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn go_away(out: &mut Vec<u8>, last: u32, code: ErrorCode, why: &str) {
    begin(out, 8 + why.len(), GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(why.as_bytes());
}

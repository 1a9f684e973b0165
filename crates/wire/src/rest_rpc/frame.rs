//! Frame headers of every version, and frame parsing.

use bytes::{Buf, BufMut, BytesMut};
use polyrpc_core::Violation;

use super::version::{ByteOrder, Version};
use crate::oversized::MAX_DISCARDED;

/// First byte since the version of December 2022 (rest_rpc `const_vars.h`, `MAGIC_NUM`).
pub(super) const MAGIC: u8 = 39;

/// Up to v0.20, the body after the header is shorter than this (rest_rpc `const_vars.h`, `MAX_BUF_LEN`).
pub(super) const MAX_BODY: usize = 10 << 20;

/// A parsed header of any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Length of the body in bytes.
    pub(super) length: usize,
    /// Request number that a response repeats; always 0 since v0.21.
    pub(super) id: u64,
    /// Number of the function, or of the topic since v0.21; 0 if the version has none.
    pub(super) function: u32,
}

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call or its response.
    Call,
    /// A subscription or a published message.
    Topic,
    /// A heartbeat: a message without body up to v0.20.
    Heartbeat,
    /// An unknown type, by its number.
    Other(u8),
}

/// Result of parsing the start of an inbox.
#[derive(Debug)]
pub(super) enum NextFrame {
    /// A complete frame: its header and its body.
    Frame(Header, BytesMut),
    /// The start of a frame of `wanted` bytes, 0 while the length is unknown.
    Short { wanted: usize },
}

/// Removes the next frame from `inbox`; `limit` bounds its total length.
pub(super) fn take(inbox: &mut BytesMut, version: Version, limit: usize) -> Result<NextFrame, Violation> {
    if version.has_magic() && inbox.first().is_some_and(|first| *first != MAGIC) {
        return Err(Violation::new("the magic byte is not 39"));
    }
    let Some(head) = inbox.get(..version.header()) else { return Ok(NextFrame::Short { wanted: 0 }) };
    let header = version.read(head);
    let total = version.frame_length(header.length, limit)?;
    if inbox.len() < total {
        return Ok(NextFrame::Short { wanted: total });
    }
    let mut body = inbox.split_to(total);
    body.advance(version.header());
    Ok(NextFrame::Frame(header, body))
}

/// Removes the header of a frame that exceeds the limit, and returns it; `None` if it exceeds the protocol's own limit
/// too, or the rest of it is too long to skip.
#[cold]
pub(super) fn take_oversized(inbox: &mut BytesMut, version: Version) -> Option<Header> {
    let header = version.read(inbox.get(..version.header())?);
    let max = if matches!(version, Version::V0_21(_)) { MAX_DISCARDED } else { MAX_BODY - 1 };
    if header.length > max {
        return None;
    }
    inbox.advance(version.header());
    Some(header)
}

impl Version {
    fn has_magic(self) -> bool {
        !matches!(self, Self::V0_04 | Self::V0_11)
    }

    /// Returns the length of a header in bytes.
    pub(super) fn header(self) -> usize {
        match self {
            Self::V0_04 => 12,
            Self::V0_11 => 13,
            Self::From20221223 => 16,
            Self::From20230216 => 24,
            Self::V0_20 => 20,
            Self::V0_21(_) => 32,
        }
    }

    /// Returns the length of a frame with a body of `body` bytes.
    fn frame_length(self, body: usize, limit: usize) -> Result<usize, Violation> {
        if !matches!(self, Self::V0_21(_)) && body >= MAX_BODY {
            return Err(Violation::too_large("a rest_rpc body is smaller than 10 MiB"));
        }
        body.checked_add(self.header())
            .filter(|total| *total <= limit)
            .ok_or_else(|| Violation::message_too_large(body.saturating_add(self.header()), limit))
    }

    /// Parses a header, which `head` contains completely.
    fn read(self, mut head: &[u8]) -> Header {
        match self {
            Self::V0_04 => {
                let length = head.get_u32_le() as usize;
                let kind = Kind::until_v0_20(0, length);
                Header { kind, length, id: head.get_u64_le(), function: 0 }
            }
            Self::V0_11 => {
                let (length, id) = (head.get_u32_le() as usize, head.get_u64_le());
                let kind = Kind::until_v0_20(head.get_u8(), length);
                Header { kind, length, id, function: 0 }
            }
            Self::From20221223 | Self::From20230216 | Self::V0_20 => {
                head.advance(1);
                let kind = head.get_u8();
                // Compiler padding with arbitrary content, here and after the number.
                head.advance(2);
                let (length, id) = (head.get_u32_le() as usize, head.get_u64_le());
                let function = if self == Self::From20221223 { 0 } else { head.get_u32_le() };
                Header { kind: Kind::until_v0_20(kind, length), length, id, function }
            }
            Self::V0_21(order) => {
                // After the magic byte: a version and a serialization type, both unused.
                head.advance(3);
                let kind = Kind::from_number(head.get_u8());
                let (function, id, length) = match order {
                    ByteOrder::Little => (head.get_u32_le(), head.get_u64_le(), head.get_u64_le()),
                    ByteOrder::Big => (head.get_u32(), head.get_u64(), head.get_u64()),
                };
                // A length beyond `usize` exceeds every limit.
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                Header { kind, length, id, function }
            }
        }
    }

    /// Writes a header. Its length fits: up to v0.20 by [`MAX_BODY`].
    pub(super) fn write(self, header: Header, out: &mut Vec<u8>) {
        let Header { kind, length, id, function } = header;
        match self {
            Self::V0_04 | Self::V0_11 => {
                out.put_u32_le(length as u32);
                out.put_u64_le(id);
                if self == Self::V0_11 {
                    out.put_u8(kind.number());
                }
            }
            Self::From20221223 | Self::From20230216 | Self::V0_20 => {
                out.put_slice(&[MAGIC, kind.number(), 0, 0]);
                out.put_u32_le(length as u32);
                out.put_u64_le(id);
                if self != Self::From20221223 {
                    out.put_u32_le(function);
                }
                if self == Self::From20230216 {
                    out.put_u32_le(0);
                }
            }
            Self::V0_21(order) => {
                out.put_slice(&[MAGIC, 0, 0, kind.number()]);
                let length = length as u64;
                match order {
                    ByteOrder::Little => {
                        out.put_u32_le(function);
                        out.put_u64_le(id);
                        out.put_u64_le(length);
                    }
                    ByteOrder::Big => {
                        out.put_u32(function);
                        out.put_u64(id);
                        out.put_u64(length);
                    }
                }
                // Length of an attachment, unused.
                out.put_u64(0);
            }
        }
    }
}

impl Kind {
    /// A message without body is a heartbeat: the peer ignores its type (rest_rpc `connection.h`, `read_head`).
    fn until_v0_20(number: u8, length: usize) -> Self {
        if length == 0 { Self::Heartbeat } else { Self::from_number(number) }
    }

    fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Call,
            1 => Self::Topic,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Call | Self::Heartbeat => 0,
            Self::Topic => 1,
            Self::Other(number) => number,
        }
    }
}

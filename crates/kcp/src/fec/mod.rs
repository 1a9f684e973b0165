//! Forward error correction: parity datagrams are added to every group of data datagrams, and replace as many lost ones
//! (`fec.go`).
//!
//! ```text
//!  0       4       6       8
//!  | seqid | 0xf1  | size  | segments …        data; the size counts itself
//!  | seqid | 0xf2  | parity of everything after the flag
//! ```
//!
//! All numbers are little-endian. A group's sequence numbers start at a multiple of its size; its data shards come
//! first.

mod decoder;
mod encoder;

mod gf256;
mod reed_solomon;

pub(crate) use self::decoder::Decoder;
pub(crate) use self::encoder::Encoder;
pub(crate) use self::reed_solomon::Code;

/// Decrypted payload of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shard<'a> {
    /// Segments; if they are protected, also with the group's view of them, size included.
    Data { segments: &'a [u8], protected: Option<(u32, &'a [u8])> },
    /// Parity, to recover lost datagrams.
    Parity { seqid: u32, bytes: &'a [u8] },
}

impl<'a> Shard<'a> {
    /// Parses the payload by its flag: without protection, the command of a segment is at its position. A peer that
    /// protects its datagrams is therefore understood whether we do or not.
    pub(super) fn parse(payload: &'a [u8]) -> Option<Self> {
        let (&[a, b, c, d, flag, zero], bytes) = payload.split_first_chunk::<HEADER>()?;
        let seqid = u32::from_le_bytes([a, b, c, d]);
        Some(match u16::from_le_bytes([flag, zero]) {
            DATA => Self::Data { segments: strip_padding(bytes)?, protected: Some((seqid, bytes)) },
            PARITY => Self::Parity { seqid, bytes },
            _ => Self::Data { segments: payload, protected: None },
        })
    }
}

/// Returns the segments of a shard, which may be followed by padding.
pub(super) fn strip_padding(shard: &[u8]) -> Option<&[u8]> {
    let (size, _) = shard.split_first_chunk::<2>()?;
    shard.get(2..usize::from(u16::from_le_bytes(*size)))
}

/// Bytes before the protected part.
pub(super) const HEADER: usize = 6;
/// The header and the size, which precede segments.
pub(super) const OVERHEAD: usize = HEADER + 2;

const DATA: u16 = 0xf1;
const PARITY: u16 = 0xf2;

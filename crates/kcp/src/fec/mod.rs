//! Forward error correction: to every few datagrams some are added, of which as many as were lost replace them
//! (`fec.go`).
//!
//! ```text
//!  0       4       6       8
//!  | seqid | 0xf1  | size  | segments …        data; the size counts itself
//!  | seqid | 0xf2  | what the code makes of everything behind the flag: parity
//! ```
//!
//! All numbers are little-endian. A group's numbers begin at a multiple of its size; its data comes first.

mod decoder;
mod encoder;

mod field;
mod reed_solomon;

pub(crate) use self::decoder::Decoder;
pub(crate) use self::encoder::Encoder;
pub(crate) use self::reed_solomon::Code;

/// What is behind a datagram's cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shard<'a> {
    /// Segments; with how the group sees them, size included, if they are protected.
    Data { segments: &'a [u8], protected: Option<(u32, &'a [u8])> },
    /// What may help to recover lost ones.
    Parity { seqid: u32, bytes: &'a [u8] },
}

impl<'a> Shard<'a> {
    /// Tells by the flag what it is: where it stands, plain segments have their command. So a peer that protects what
    /// it sends is understood whether we do or not.
    pub(super) fn parse(payload: &'a [u8]) -> Option<Self> {
        let (&[a, b, c, d, flag, zero], bytes) = payload.split_first_chunk::<HEADER>()?;
        let seqid = u32::from_le_bytes([a, b, c, d]);
        Some(match u16::from_le_bytes([flag, zero]) {
            DATA => Self::Data { segments: sized(bytes)?, protected: Some((seqid, bytes)) },
            PARITY => Self::Parity { seqid, bytes },
            _ => Self::Data { segments: payload, protected: None },
        })
    }
}

/// The segments of a shard, which may be filled up behind them.
pub(super) fn sized(shard: &[u8]) -> Option<&[u8]> {
    let (size, _) = shard.split_first_chunk::<2>()?;
    shard.get(2..usize::from(u16::from_le_bytes(*size)))
}

/// Bytes before what is protected.
pub(super) const HEADER: usize = 6;
/// The same with the size, which stands before segments.
pub(super) const OVERHEAD: usize = HEADER + 2;

const DATA: u16 = 0xf1;
const PARITY: u16 = 0xf2;

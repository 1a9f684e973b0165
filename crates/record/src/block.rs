//! Blocks: the units of writing, each with its own checksum.
//!
//! | bytes | |
//! |---|---|
//! | 4 | `PRB1` |
//! | 1 | kind |
//! | 1 | compression of the content: 0 none, 1 zstd |
//! | 2 | 0 |
//! | 4 | length of the stored content |
//! | 4 | length of the content before compression |
//! | 4 | CRC32C of the stored content |
//! | 4 | CRC32C of the 20 bytes before |
//!
//! Numbers are little-endian.

use std::io;

/// First bytes of a recording.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"POLYREC1";
/// Last bytes of a complete recording, after the position of its index.
pub(crate) const TRAILER_MAGIC: [u8; 8] = *b"POLYRECX";
/// Length of the trailer: a position and its magic.
pub(crate) const TRAILER: usize = 16;
/// Length of a block's header.
pub(crate) const HEADER: usize = 24;
/// Maximum length of the content of a block before compression.
pub(crate) const MAX_CONTENT: usize = 256 << 10;
/// Maximum length of the stored content: zstd never adds more than this.
pub(crate) const MAX_STORED: usize = MAX_CONTENT + (MAX_CONTENT >> 7) + 512;

const MAGIC: [u8; 4] = *b"PRB1";
const ZSTD: u8 = 1;
/// The default of zstd is 3; level 1 takes half the time for nearly the same size of short messages.
const LEVEL: i32 = 1;

/// Kind of a block's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whole entries.
    Entries = 1,
    /// The start of an entry that is larger than a block.
    First = 2,
    /// A part of it.
    Middle = 3,
    /// The end of it.
    Last = 4,
    /// The index.
    Index = 5,
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Entries, Self::First, Self::Middle, Self::Last, Self::Index]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// `None`: a kind that is unknown to this version.
    pub(crate) kind: Option<Kind>,
    pub(crate) stored: usize,
    compression: u8,
    raw: usize,
    checksum: u32,
}

impl Header {
    /// Reads a header. `None` if there is none, or it is damaged.
    pub(crate) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        let (magic, body) = body.split_first_chunk::<4>()?;
        if *magic != MAGIC || crc32c::crc32c(bytes.get(..HEADER - 4)?) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let &[kind, compression, _, _, ref lengths @ ..] = body else { return None };
        let (stored, rest) = lengths.split_first_chunk::<4>()?;
        let (raw, checksum) = rest.split_first_chunk::<4>()?;
        let stored = u32::from_le_bytes(*stored) as usize;
        let raw = u32::from_le_bytes(*raw) as usize;
        if stored > MAX_STORED || raw > MAX_CONTENT {
            return None;
        }
        let checksum = u32::from_le_bytes(checksum.try_into().ok()?);
        Some(Self { kind: Kind::from_number(kind), stored, compression, raw, checksum })
    }

    /// Checks and decompresses the stored content. `None` if it is damaged.
    pub(crate) fn decompress(&self, stored: &[u8]) -> Option<Vec<u8>> {
        if stored.len() != self.stored || crc32c::crc32c(stored) != self.checksum {
            return None;
        }
        let content = match self.compression {
            0 => stored.to_vec(),
            ZSTD => zstd::bulk::decompress(stored, self.raw).ok()?,
            _ => return None,
        };
        (content.len() == self.raw).then_some(content)
    }
}

/// Appends a block with this content, which is at most [`MAX_CONTENT`] long.
///
/// # Errors
///
/// If zstd cannot allocate memory.
pub(crate) fn put(out: &mut Vec<u8>, kind: Kind, content: &[u8]) -> io::Result<()> {
    debug_assert!(content.len() <= MAX_CONTENT);
    let compressed = zstd::bulk::compress(content, LEVEL)?;
    let (compression, stored) = match compressed.len() < content.len() {
        true => (ZSTD, compressed.as_slice()),
        false => (0, content),
    };
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[kind as u8, compression, 0, 0]);
    for number in [stored.len() as u32, content.len() as u32, crc32c::crc32c(stored)] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let checksum = crc32c::crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(stored);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(block: &[u8]) -> (Option<Header>, Vec<u8>) {
        let (header, stored) = block.split_first_chunk::<HEADER>().unwrap();
        (Header::parse(header), stored.to_vec())
    }

    #[test]
    fn content_is_restored_whether_or_not_it_is_compressible() {
        for content in [&b""[..], b"x", &[7; MAX_CONTENT]] {
            let mut block = Vec::new();
            put(&mut block, Kind::Entries, content).unwrap();
            let (header, stored) = split(&block);
            assert_eq!(header.unwrap().decompress(&stored).unwrap(), content);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut block = Vec::new();
        put(&mut block, Kind::Entries, &b"some content, some content".repeat(9)).unwrap();
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (header, stored) = split(&damaged);
            assert!(header.and_then(|header| header.decompress(&stored)).is_none(), "bit {bit}");
        }
    }
}

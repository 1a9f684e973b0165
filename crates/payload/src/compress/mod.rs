//! Compression and decompression with output limits.
//!
//! The limit applies to the output: its buffer grows in steps, so that never more than the limit is held, whatever
//! length the input announces; during a step the output may exist twice, so that the peak is one and a half times the
//! limit if the allocator cannot grow in place. The states of deflate and zstd are kept per thread, because creating
//! one costs more than running it on a message of typical size: 48 KiB and 2 MiB.

use std::fmt;

use polyrpc_core::Compression;

mod deflate;
mod lz4;
mod snappy;
#[cfg(feature = "zstd")]
mod zstd;

/// Compresses `bytes`.
///
/// # Errors
///
/// [`Error::Unknown`] if this build does not support the compression, [`Error::Broken`] if the format does not support
/// so many bytes (4 GiB).
pub fn compress(compression: Compression, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    match compression {
        Compression::None => Ok(bytes.to_vec()),
        Compression::Gzip => deflate::gzip(bytes),
        Compression::Zlib => deflate::zlib(bytes),
        Compression::Snappy => snappy::compress(bytes),
        Compression::SnappyFrames => snappy::compress_frames(bytes),
        Compression::Lz4 => lz4::compress(bytes),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::compress(bytes),
        unknown => Err(Error::Unknown(unknown)),
    }
}

/// Decompresses `bytes` into at most `limit` bytes.
///
/// Truncated input is malformed, and so is input with trailing bytes.
///
/// # Errors
///
/// [`Error::TooLarge`] once the output exceeds `limit`, [`Error::Broken`] for malformed input, [`Error::Unknown`] if
/// this build does not support the compression.
pub fn decompress(compression: Compression, bytes: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    decompress_reserving(compression, bytes, limit, &mut |wanted| wanted)
}

/// Decompresses `bytes` into at most `limit` bytes, and reserves the memory of the output before it is allocated.
///
/// `reserve` is called with a number of further bytes, and returns how many of them are granted. The reserved bytes may
/// be more than the output has in the end.
///
/// # Errors
///
/// As [`decompress`], and [`Error::NoMemory`] if the output does not fit into the granted bytes.
pub fn decompress_reserving(
    compression: Compression,
    bytes: &[u8],
    limit: usize,
    reserve: &mut dyn FnMut(usize) -> usize,
) -> Result<Vec<u8>, Error> {
    let mut room = Room { limit, reserve };
    match compression {
        Compression::None => {
            check(bytes, limit)?;
            room.reserve_exact(bytes.len())?;
            Ok(bytes.to_vec())
        }
        Compression::Gzip => deflate::gunzip(bytes, &mut room).map(release_unused),
        Compression::Zlib => deflate::unzlib(bytes, &mut room).map(release_unused),
        Compression::Snappy => snappy::decompress(bytes, &mut room),
        Compression::SnappyFrames => snappy::decompress_frames(bytes, &mut room).map(release_unused),
        Compression::Lz4 => lz4::decompress(bytes, &mut room),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::decompress(bytes, &mut room).map(release_unused),
        unknown => Err(Error::Unknown(unknown)),
    }
}

/// Returns the output length that the input announces, so that memory can be reserved in advance.
///
/// The value is not trustworthy: the output may be longer or shorter. `None` if the input announces none (gzip, zlib,
/// snappy frames, and zstd if the sender did not know it); for several zstd frames it is that of the first.
pub fn hint(compression: Compression, bytes: &[u8]) -> Option<usize> {
    match compression {
        Compression::None => Some(bytes.len()),
        Compression::Snappy => snappy::hint(bytes),
        Compression::Lz4 => lz4::hint(bytes),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::hint(bytes),
        _ => None,
    }
}

/// Releases unused capacity if it is large: the output may be kept for long.
fn release_unused(mut out: Vec<u8>) -> Vec<u8> {
    if out.capacity() > WORTH_FITTING && out.capacity() / 2 > out.len() {
        out.shrink_to_fit();
    }
    out
}

/// Why compression or decompression failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The output exceeds the limit.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The output needs more memory than [`decompress_reserving`] was granted.
    NoMemory,
    /// The input is malformed, for this reason.
    Broken(&'static str),
    /// This build does not support the compression.
    Unknown(Compression),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "decompressed size exceeds the limit of {limit} bytes"),
            Self::NoMemory => f.write_str("no memory is left for the decompressed bytes"),
            Self::Broken(reason) => f.write_str(reason),
            Self::Unknown(Compression::Other(number)) => write!(f, "unknown compression {number}"),
            Self::Unknown(compression) => write!(f, "no support for {}", compression.as_str()),
        }
    }
}

impl std::error::Error for Error {}

/// Limits of an output.
struct Room<'r> {
    /// Maximum length of the output in bytes.
    limit: usize,
    /// Reserves further bytes; returns how many of them are granted.
    reserve: &'r mut dyn FnMut(usize) -> usize,
}

impl Room<'_> {
    /// Allocates the initial buffer for output of unknown length.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`] if nothing is granted.
    fn first_buffer(&mut self, input: &[u8]) -> Result<Vec<u8>, Error> {
        let usual = input.len().saturating_mul(4).clamp(SMALLEST, LARGEST_FIRST);
        let granted = self.reserve_some(usual.min(self.limit.saturating_add(1)))?;
        Ok(Vec::with_capacity(granted))
    }

    /// Grows `out`, which is full: to twice its size, but to at most one byte above the limit. That byte distinguishes
    /// output that ends at the limit from longer output.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] once that byte is in use, [`Error::NoMemory`] if nothing is granted.
    fn grow(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        check(out, self.limit)?;
        let wanted = out.len().saturating_mul(2).max(SMALLEST).min(self.limit.saturating_add(1));
        let granted = self.reserve_some(wanted.saturating_sub(out.len()).max(1))?;
        out.reserve_exact(granted);
        Ok(())
    }

    /// Reserves output of known length.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`] if less is granted.
    fn reserve_exact(&mut self, length: usize) -> Result<(), Error> {
        if (self.reserve)(length) < length { Err(Error::NoMemory) } else { Ok(()) }
    }

    fn reserve_some(&mut self, wanted: usize) -> Result<usize, Error> {
        match (self.reserve)(wanted).min(wanted) {
            0 => Err(Error::NoMemory),
            granted => Ok(granted),
        }
    }
}

/// # Errors
///
/// [`Error::TooLarge`] if `out` exceeds `limit`.
fn check(out: &[u8], limit: usize) -> Result<(), Error> {
    if out.len() > limit { Err(Error::TooLarge { limit }) } else { Ok(()) }
}

const SMALLEST: usize = 512;
/// Below this capacity, releasing the unused part is not worth a copy.
const WORTH_FITTING: usize = 4 << 10;
const LARGEST_FIRST: usize = 64 << 10;

#[cfg(test)]
mod tests;

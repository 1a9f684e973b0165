//! Compression with limits on what comes out.
//!
//! The limit counts the output: it grows in steps as it is made, so that no more than the limit is ever
//! held, whatever the input announces; while a step is made, the output so far may be there twice, so that the
//! peak is one and a half times the limit where the allocator cannot grow in place. The states of deflate and zstd are
//! kept per thread, because setting one up costs more than running it on a message of the usual size: 48 KiB and 2 MiB.

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
/// [`Error::Unknown`] for a compression this build has no code for, [`Error::Broken`] where the format has
/// no room for so many bytes (4 GiB).
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

/// Takes the compression off `bytes`, as long as no more than `limit` bytes come out.
///
/// Input that is cut short, or goes on behind its end, is broken.
///
/// # Errors
///
/// [`Error::TooLarge`] once the output passes `limit`, [`Error::Broken`] for input that is not of this
/// compression, [`Error::Unknown`] for a compression this build has no code for.
pub fn decompress(compression: Compression, bytes: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    match compression {
        Compression::None if bytes.len() > limit => Err(Error::TooLarge { limit }),
        Compression::None => Ok(bytes.to_vec()),
        Compression::Gzip => deflate::gunzip(bytes, limit).map(fitted),
        Compression::Zlib => deflate::unzlib(bytes, limit).map(fitted),
        Compression::Snappy => snappy::decompress(bytes, limit),
        Compression::SnappyFrames => snappy::decompress_frames(bytes, limit).map(fitted),
        Compression::Lz4 => lz4::decompress(bytes, limit),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::decompress(bytes, limit).map(fitted),
        unknown => Err(Error::Unknown(unknown)),
    }
}

/// How many bytes the input says will come out of it, so that room for them can be asked for before.
///
/// It is the peer's word: more or less may come. `None` where the input says nothing (gzip, zlib, frames of snappy, and
/// zstd's where the sender did not know); of several frames of zstd it is the first.
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

/// Gives back memory that the output does not need, where that is much: the output may be kept for long.
fn fitted(mut out: Vec<u8>) -> Vec<u8> {
    if out.capacity() > WORTH_FITTING && out.capacity() / 2 > out.len() {
        out.shrink_to_fit();
    }
    out
}

/// Why bytes could not be compressed or decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// More would come out than is allowed.
    TooLarge {
        /// How much is allowed.
        limit: usize,
    },
    /// The input is not what its compression allows, for this reason.
    Broken(&'static str),
    /// This build has no code for it.
    Unknown(Compression),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "decompressed size exceeds the limit of {limit} bytes"),
            Self::Broken(reason) => f.write_str(reason),
            Self::Unknown(Compression::Other(number)) => write!(f, "unknown compression {number}"),
            Self::Unknown(compression) => write!(f, "no support for {}", compression.as_str()),
        }
    }
}

impl std::error::Error for Error {}

/// Makes room in `out` for more output: twice as much as before, but never for more than one byte over the
/// limit. That byte tells output that ends at the limit from output that goes on.
///
/// # Errors
///
/// [`Error::TooLarge`] once that byte has been used.
fn grow(out: &mut Vec<u8>, limit: usize) -> Result<(), Error> {
    check(out, limit)?;
    let wanted = out.len().saturating_mul(2).max(SMALLEST).min(limit.saturating_add(1));
    out.reserve_exact(wanted.saturating_sub(out.len()).max(1));
    Ok(())
}

/// # Errors
///
/// [`Error::TooLarge`] if `out` is.
fn check(out: &[u8], limit: usize) -> Result<(), Error> {
    if out.len() > limit { Err(Error::TooLarge { limit }) } else { Ok(()) }
}

/// The room first made for output of unknown length.
fn first_room(input: &[u8], limit: usize) -> Vec<u8> {
    Vec::with_capacity(
        input.len().saturating_mul(4).clamp(SMALLEST, LARGEST_FIRST).min(limit.saturating_add(1)),
    )
}

const SMALLEST: usize = 512;
/// With less room than this, what is not needed of it is not worth a copy.
const WORTH_FITTING: usize = 4 << 10;
const LARGEST_FIRST: usize = 64 << 10;

#[cfg(test)]
mod tests;

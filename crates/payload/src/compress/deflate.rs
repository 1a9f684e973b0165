//! gzip (RFC 1952) and zlib (RFC 1950), at zlib's default level, like brpc and rpcx.

use std::cell::RefCell;

use flate2::{Compress, Crc, Decompress, FlushCompress, FlushDecompress, Status};

use super::{Error, Room, check};

pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    thread_local! {
        static STATE: RefCell<Compress> =
            RefCell::new(Compress::new_gzip(flate2::Compression::default(), WINDOW_BITS));
    }
    STATE.with_borrow_mut(|state| deflate(state, bytes))
}

pub(super) fn zlib(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    thread_local! {
        static STATE: RefCell<Compress> =
            RefCell::new(Compress::new(flate2::Compression::default(), true));
    }
    STATE.with_borrow_mut(|state| deflate(state, bytes))
}

fn deflate(state: &mut Compress, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    state.reset();
    // Worst-case overhead of deflate: a header of 5 bytes for every stored block, and the wrapper.
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 1000 + 64);
    loop {
        let taken = position(state.total_in());
        let rest = bytes.get(taken..).unwrap_or_default();
        match state.compress_vec(rest, &mut out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => return Ok(out),
            Ok(Status::Ok | Status::BufError) => out.reserve(out.len().max(64)),
            Err(_) => return Err(Error::Broken("deflate failed")),
        }
    }
}

/// Decompresses consecutive members, like Go's `gzip.Reader` and protobuf's `GzipInputStream` (which brpc uses);
/// anything else after a member is an error.
pub(super) fn gunzip(bytes: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Error> {
    let mut out = room.first_buffer(bytes)?;
    let mut rest = bytes;
    loop {
        rest = member(rest, &mut out, room)?;
        if rest.is_empty() {
            return Ok(out);
        }
    }
}

/// Decompresses one gzip member and returns the bytes after it.
///
/// The wrapper is parsed here rather than by zlib, since resetting a pooled state loses its gzip mode (flate2
/// `Decompress::reset` supports only zlib and raw).
fn member<'a>(bytes: &'a [u8], out: &mut Vec<u8>, room: &mut Room<'_>) -> Result<&'a [u8], Error> {
    let body = skip_header(bytes).ok_or(Error::Broken("not a gzip header"))?;
    let start = out.len();
    let rest = inflate(Wrapping::Raw, body, out, room)?;
    let (trailer, rest) = rest.split_first_chunk::<8>().ok_or(TRUNCATED)?;
    let [c0, c1, c2, c3, l0, l1, l2, l3] = *trailer;

    let made = out.get(start..).unwrap_or_default();
    let mut crc = Crc::new();
    crc.update(made);
    if crc.sum() != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(Error::Broken("gzip checksum does not match"));
    }
    // The trailer contains the length modulo 2^32.
    if made.len() as u32 != u32::from_le_bytes([l0, l1, l2, l3]) {
        return Err(Error::Broken("gzip length does not match"));
    }
    Ok(rest)
}

/// Returns the bytes after a member's header (RFC 1952 section 2.3), or `None` if it is malformed.
fn skip_header(bytes: &[u8]) -> Option<&[u8]> {
    let (fixed, mut rest) = bytes.split_first_chunk::<10>()?;
    let [0x1f, 0x8b, DEFLATE, flags, ..] = *fixed else { return None };
    if flags & RESERVED != 0 {
        return None;
    }
    if flags & EXTRA != 0 {
        let (length, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|&byte| byte == 0)?;
            rest = rest.get(end + 1..)?;
        }
    }
    if flags & HEADER_CRC != 0 {
        let header = bytes.get(..bytes.len() - rest.len())?;
        let (stored, after) = rest.split_first_chunk::<2>()?;
        let mut crc = Crc::new();
        crc.update(header);
        if crc.sum() as u16 != u16::from_le_bytes(*stored) {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

pub(super) fn unzlib(bytes: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Error> {
    let mut out = room.first_buffer(bytes)?;
    match inflate(Wrapping::Zlib, bytes, &mut out, room)? {
        [] => Ok(out),
        _ => Err(Error::Broken("bytes after the end of a zlib stream")),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrapping {
    Raw,
    Zlib,
}

/// Appends the output of one deflate stream to `out` and returns the bytes after the stream.
fn inflate<'a>(
    wrapping: Wrapping,
    bytes: &'a [u8],
    out: &mut Vec<u8>,
    room: &mut Room<'_>,
) -> Result<&'a [u8], Error> {
    thread_local! {
        static STATE: RefCell<Decompress> = RefCell::new(Decompress::new(true));
    }
    STATE.with_borrow_mut(|state| {
        state.reset(wrapping == Wrapping::Zlib);
        let mut rest = bytes;
        loop {
            if out.len() == out.capacity() {
                room.grow(out)?;
            }
            let had = out.len();
            // `Finish` saves zlib the copy into its window if the output fits at once.
            let status = state
                .decompress_vec(rest, out, FlushDecompress::Finish)
                .map_err(|_| Error::Broken("not deflated data"))?;
            check(out, room.limit)?;
            let before = rest.len();
            rest = bytes.get(position(state.total_in())..).unwrap_or_default();
            if status == Status::StreamEnd {
                return Ok(rest);
            }
            if out.len() == had && rest.len() == before && out.len() < out.capacity() {
                return Err(TRUNCATED);
            }
        }
    })
}

/// Converts a position in a slice, which zlib counts in 64 bits.
fn position(total: u64) -> usize {
    usize::try_from(total).unwrap_or(usize::MAX)
}

const TRUNCATED: Error = Error::Broken("compressed data is cut short");
const WINDOW_BITS: u8 = 15;
const DEFLATE: u8 = 8;
const HEADER_CRC: u8 = 0x02;
const EXTRA: u8 = 0x04;
const NAME: u8 = 0x08;
const COMMENT: u8 = 0x10;
const RESERVED: u8 = 0xe0;

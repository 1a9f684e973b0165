//! Snappy: one raw block (brpc `policy/snappy_compress.cpp`), or a stream of frames with checksums
//! (`framing_format.txt` of google/snappy), as written by gRPC's codecs.

use std::io::{Read, Write};

use super::{Error, Room, check};

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    snap::raw::Encoder::new().compress_vec(bytes).map_err(|_| TOO_LONG)
}

pub(super) fn decompress(bytes: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Error> {
    let length = snap::raw::decompress_len(bytes).map_err(|_| BROKEN)?;
    if length > room.limit {
        return Err(Error::TooLarge { limit: room.limit });
    }
    // The densest element produces 64 bytes from 3, so that a longer announced length is wrong; this is checked before
    // memory is allocated for it.
    if length > bytes.len().saturating_mul(22) {
        return Err(BROKEN);
    }
    room.reserve_exact(length)?;
    let mut out = vec![0; length];
    match snap::raw::Decoder::new().decompress(bytes, &mut out) {
        Ok(made) if made == length => Ok(out),
        _ => Err(BROKEN),
    }
}

/// Returns the length that a block announces.
pub(super) fn hint(bytes: &[u8]) -> Option<usize> {
    snap::raw::decompress_len(bytes).ok()
}

/// Compresses into a stream of frames.
pub(super) fn compress_frames(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).map_err(|_| TOO_LONG)?;
    let mut out = encoder.into_inner().map_err(|_| TOO_LONG)?;
    if out.is_empty() {
        // The encoder writes nothing for empty input, but a reader requires the stream identifier.
        out.extend_from_slice(STREAM_IDENTIFIER);
    }
    Ok(out)
}

pub(super) fn decompress_frames(bytes: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Error> {
    let (mut decoder, mut out) = (snap::read::FrameDecoder::new(bytes), room.first_buffer(bytes)?);
    loop {
        if out.len() == out.capacity() {
            room.grow(&mut out)?;
        }
        let filled = out.len();
        // At most one frame at a time: the output area is zeroed before.
        out.resize(out.capacity().min(room.limit.saturating_add(1)).min(filled + FRAME), 0);
        let read = decoder.read(&mut out[filled..]).map_err(|_| BROKEN_FRAMES)?;
        out.truncate(filled + read);
        check(&out, room.limit)?;
        if read == 0 {
            return Ok(out);
        }
    }
}

/// Maximum output of one frame.
const FRAME: usize = 64 << 10;
const STREAM_IDENTIFIER: &[u8] = b"\xff\x06\0\0sNaPpY";
const TOO_LONG: Error = Error::Broken("too long for snappy");
const BROKEN_FRAMES: Error = Error::Broken("not a stream of snappy frames");
const BROKEN: Error = Error::Broken("not a snappy block");

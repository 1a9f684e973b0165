//! One raw snappy block, without the framing format (brpc `policy/snappy_compress.cpp`).

use super::Error;

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    snap::raw::Encoder::new().compress_vec(bytes).map_err(|_| Error::Broken("too long for snappy"))
}

pub(super) fn decompress(bytes: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let length = snap::raw::decompress_len(bytes).map_err(|_| BROKEN)?;
    if length > limit {
        return Err(Error::TooLarge { limit });
    }
    // The densest element makes 64 bytes of 3, so that a longer output is a lie; found out before memory
    // is set aside for it.
    if length > bytes.len().saturating_mul(22) {
        return Err(BROKEN);
    }
    let mut out = vec![0; length];
    match snap::raw::Decoder::new().decompress(bytes, &mut out) {
        Ok(made) if made == length => Ok(out),
        _ => Err(BROKEN),
    }
}

const BROKEN: Error = Error::Broken("not a snappy block");

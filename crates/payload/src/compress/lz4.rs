//! The uncompressed length as a 32-bit varint, followed by one raw LZ4 block, as in a branch of brpc.

use polyrpc_core::protobuf;
use polyrpc_core::protobuf::Reader;

use super::{Error, Room};

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let length = u32::try_from(bytes.len()).map_err(|_| Error::Broken("too long for lz4"))?;
    let prefix = protobuf::varint_len(length.into());
    let mut out = Vec::with_capacity(prefix + lz4_flex::block::get_maximum_output_size(bytes.len()));
    protobuf::put_varint(&mut out, length.into());
    out.resize(out.capacity(), 0);
    let block = out.get_mut(prefix..).unwrap_or_default();
    let made = lz4_flex::block::compress_into(bytes, block).map_err(|_| Error::Broken("lz4 failed"))?;
    out.truncate(prefix + made);
    Ok(out)
}

/// Returns the announced length.
pub(super) fn hint(bytes: &[u8]) -> Option<usize> {
    read_length(&mut Reader::new(bytes))
}

fn read_length(block: &mut Reader<'_>) -> Option<usize> {
    block.varint().and_then(|length| u32::try_from(length).ok()).map(|length| length as usize)
}

pub(super) fn decompress(bytes: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Error> {
    let mut block = Reader::new(bytes);
    let length = read_length(&mut block).ok_or(BROKEN)?;
    if length > room.limit {
        return Err(Error::TooLarge { limit: room.limit });
    }
    let block = block.rest();
    // A byte of a match's length produces at most 255 bytes, so that a longer announced length is wrong; this is
    // checked before memory is allocated for it.
    if length > block.len().saturating_mul(255) {
        return Err(BROKEN);
    }
    room.reserve_exact(length)?;
    let mut out = vec![0; length];
    match lz4_flex::block::decompress_into(block, &mut out) {
        // lz4_flex accepts less output than announced.
        Ok(made) if made == length => Ok(out),
        _ => Err(BROKEN),
    }
}

const BROKEN: Error = Error::Broken("not an lz4 block of the announced length");

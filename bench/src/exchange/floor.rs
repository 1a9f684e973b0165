//! The floor's frame: the minimum that an RPC protocol on one connection needs.
//!
//! `u16 magic · u32 payload length · u48 id`, big-endian, then the payload.

use super::u32_at;

/// Magic, length and id.
pub(crate) const HEADER: usize = 12;

const MAGIC: [u8; 2] = *b"fl";

pub(super) fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = MAGIC.to_vec();
    frame.resize(HEADER, 0);
    frame.extend_from_slice(payload);
    set_len(&mut frame);
    frame
}

pub(super) fn body_len(header: &[u8]) -> Option<usize> {
    if !header.starts_with(&MAGIC) {
        return None;
    }
    u32_at(header, 2).map(|len| len as usize)
}

/// Sets the length of the frame to that of `frame`.
pub(crate) fn set_len(frame: &mut [u8]) {
    let payload = u32::try_from(frame.len() - HEADER).expect("a payload of the floor is shorter than 4 GiB");
    frame[2..6].copy_from_slice(&payload.to_be_bytes());
}

/// Writes `id` into the header of `frame`.
pub(crate) fn set_id(frame: &mut [u8], id: u64) {
    frame[6..12].copy_from_slice(&id.to_be_bytes()[2..]);
}

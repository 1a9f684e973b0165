//! Positions in a buffer: distances, and the vtable of a table.

/// Size of a distance in bytes.
pub(super) const OFFSET: usize = 4;

/// Bytes of a vtable before its first entry: its own length and the table's.
pub(super) const FIRST_ENTRY: usize = 4;

/// Follows the distance stored at `at`.
#[inline]
pub(super) fn follow(buffer: &[u8], at: usize) -> Option<usize> {
    at.checked_add(u32_at(buffer, at)? as usize)
}

#[inline]
pub(super) fn u32_at(buffer: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*buffer.get(at..)?.first_chunk()?))
}

#[inline]
pub(super) fn u16_at(buffer: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*buffer.get(at..)?.first_chunk()?))
}

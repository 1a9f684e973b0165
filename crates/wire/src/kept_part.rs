//! Parts of a message that are kept for as long as its call is pending.

use bytes::Bytes;

/// Returns a part of a message, as a slice if it is most of it. A small part is copied: as a slice it would keep the whole
/// message in memory, though only the part counts.
pub(crate) fn kept_part(message: &Bytes, part: &[u8]) -> Bytes {
    match message.len() <= ALWAYS_SLICED || part.len() >= message.len() / 2 {
        true => message.slice_ref(part),
        false => Bytes::copy_from_slice(part),
    }
}

/// Length of a message up to which its parts are slices: a pending call counts as much in any case.
const ALWAYS_SLICED: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_part_of_a_long_message_is_copied() {
        let message = Bytes::from(vec![1; 4 * ALWAYS_SLICED]);
        let is_slice =
            |message: &Bytes, end: usize| kept_part(message, &message[..end]).as_ptr() == message.as_ptr();
        assert!(!is_slice(&message, message.len() / 2 - 1));
        assert!(is_slice(&message, message.len() / 2) && is_slice(&message.slice(..ALWAYS_SLICED), 1));
    }
}

use std::io;

use bytes::{Bytes, BytesMut};

/// Buffer of a message that is being encoded.
///
/// A large allocation starts at a page boundary, and so does the memory that it is copied from and to: that of a long
/// text, or the kernel's pages. Between them are the few bytes of a header, so that one address would be slightly
/// behind the other, relative to their pages. In this case `rep movsb`, by which the kernel and the C library copy, is
/// 15 times slower on AMD's Zen 3 and 4 (glibc's bug 30994). A large message therefore starts in the middle of a page.
/// See ADR 25.
#[derive(Debug)]
pub(super) struct Buffer(BytesMut);

impl Buffer {
    /// Creates a buffer with this capacity, which can grow.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(match capacity < LARGE {
            true => BytesMut::with_capacity(capacity),
            false => BytesMut::with_capacity(LEAD + capacity).split_off(LEAD),
        })
    }

    /// Concatenates these parts into a new message.
    pub(super) fn copy(parts: &[&[u8]]) -> Bytes {
        let mut buffer = Self::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| buffer.memory().extend_from_slice(part));
        buffer.finish()
    }

    /// Returns the memory, for callers that have reserved all they need.
    pub(super) fn memory(&mut self) -> &mut BytesMut {
        &mut self.0
    }

    /// Returns the message.
    pub(super) fn finish(self) -> Bytes {
        self.0.freeze()
    }

    fn make_room(&mut self, more: usize) {
        let needed = self.0.len() + more;
        if needed > self.0.capacity() {
            let mut larger = Self::with_capacity(needed.max(2 * self.0.capacity()));
            larger.0.extend_from_slice(&self.0);
            *self = larger;
        }
    }
}

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.make_room(bytes.len());
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Size from which the alignment matters: glibc uses `rep movsb` from 2112 bytes on.
const LARGE: usize = 2 << 10;

/// Half a page: no header is that long.
const LEAD: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn written_pieces_form_the_message_at_any_size() {
        for size in [0, 1, 64, LARGE - 1, LARGE, 100_000] {
            let content: Vec<u8> = (0..size).map(|n| n as u8).collect();
            for capacity in [0, 64, size] {
                for piece in [1, 100, LARGE] {
                    let mut buffer = Buffer::with_capacity(capacity);
                    content.chunks(piece).for_each(|piece| buffer.write_all(piece).expect("there is room"));
                    assert!(
                        buffer.finish() == content,
                        "{size} bytes, {piece} at a time, room for {capacity}"
                    );
                }
            }
            assert_eq!(Buffer::copy(&[&content, b"and more"]), [&content, &b"and more"[..]].concat());
        }
    }

    #[test]
    fn large_message_leaves_lead_space_unused() {
        for (size, lead) in [(LARGE - 1, 0), (LARGE, LEAD)] {
            let mut memory = Buffer::with_capacity(size).0;
            assert_eq!(memory.capacity(), size);
            // The bytes before it count only once they are reclaimed.
            assert!(memory.try_reclaim(size + lead));
            assert!(!memory.try_reclaim(size + LEAD + 1));
        }
    }
}

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

use crate::append::append;

/// Outgoing bytes of a connection.
///
/// Small chunks are copied together, so that a batch of replies is sent in one write; large ones are shared and sent by
/// a vectored write without a copy.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Complete chunks, oldest first.
    chunks: VecDeque<Bytes>,
    /// Buffer being appended to; it is sent after all chunks.
    tail: Vec<u8>,
    /// Number of bytes of the tail that were sent already. Not 0 only while there are no chunks.
    sent: usize,
    /// Bytes in `chunks`.
    shared: usize,
}

impl Outbox {
    /// A body of at least this size is shared instead of copied: below it, the bookkeeping of a separate chunk and the
    /// longer vectored write cost more than the copy.
    pub const SHARE: usize = 8 << 10;

    /// If at least this many bytes precede a shared body, their buffer is moved instead of copied: below it, another
    /// buffer costs more than the copy.
    const MIN_MOVED_BYTES: usize = 1 << 10;

    /// Creates an empty outbox.
    pub const fn new() -> Self {
        Self { chunks: VecDeque::new(), tail: Vec::new(), sent: 0, shared: 0 }
    }

    /// Lends a buffer to append into, so that an idle connection needs none of its own. Does nothing if there is one
    /// already.
    pub fn lend_buffer(&mut self, buffer: Vec<u8>) {
        if self.tail.capacity() == 0 {
            self.tail = buffer;
            self.tail.clear();
        }
    }

    /// Takes the buffer back, once everything was sent.
    pub fn reclaim(&mut self) -> Option<Vec<u8>> {
        (self.is_empty() && self.tail.capacity() > 0).then(|| std::mem::take(&mut self.tail))
    }

    /// Returns the buffer for small writes. Append only: its present content belongs to earlier writes.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Appends a copy of `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        append(&mut self.tail, bytes);
    }

    /// Appends a body: copied if small, shared if large.
    pub fn body(&mut self, body: Bytes) {
        if body.len() < Self::SHARE {
            self.extend_from_slice(&body);
        } else {
            self.close_tail();
            self.shared += body.len();
            self.chunks.push_back(body);
        }
    }

    /// Returns the number of bytes that were not sent yet.
    pub fn len(&self) -> usize {
        self.shared + self.tail.len() - self.sent
    }

    /// Whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `slices` with the next bytes to send, for a vectored write; returns the number of slices filled.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = &self.tail[self.sent..];
        let pending = self.chunks.iter().map(|chunk| &chunk[..]).chain((!tail.is_empty()).then_some(tail));
        let mut filled = 0;
        for (slot, bytes) in slices.iter_mut().zip(pending) {
            *slot = IoSlice::new(bytes);
            filled += 1;
        }
        filled
    }

    /// Returns the next bytes to send if they are one slice, which avoids the vectored write.
    pub fn as_single_slice(&self) -> Option<&[u8]> {
        match self.chunks.front() {
            None => Some(&self.tail[self.sent..]),
            Some(chunk) if self.chunks.len() == 1 && self.tail.is_empty() => Some(chunk),
            Some(_) => None,
        }
    }

    /// Marks `n` bytes as written.
    ///
    /// # Panics
    ///
    /// If `n` exceeds the number of unsent bytes.
    pub fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len(), "advanced past the end of the outbox");
        while let Some(chunk) = self.chunks.front_mut() {
            if n < chunk.len() {
                chunk.advance(n);
                self.shared -= n;
                return;
            }
            n -= chunk.len();
            self.shared -= chunk.len();
            self.chunks.pop_front();
        }
        self.sent += n;
        if self.sent == self.tail.len() {
            self.tail.clear();
            self.sent = 0;
        }
    }

    /// Returns all unsent bytes as one buffer; for tests and for protocols that wrap another.
    pub fn take(&mut self) -> Vec<u8> {
        let mut slices = vec![IoSlice::new(&[]); self.chunks.len() + 1];
        let filled = self.slices(&mut slices);
        let all = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>();
        *self = Self::new();
        all
    }

    /// Moves all bytes to the end of `other`: small chunks are copied, large ones moved.
    pub fn append_to(&mut self, other: &mut Self) {
        self.chunks.drain(..).for_each(|chunk| other.body(chunk));
        self.shared = 0;
        if self.len() >= Self::SHARE {
            self.close_tail();
            return self.append_to(other);
        }
        other.extend_from_slice(&self.tail[self.sent..]);
        self.tail.clear();
        self.sent = 0;
    }

    /// Turns the tail into a chunk, so that something can be appended after it without a copy. A short tail is copied,
    /// so that its buffer stays available.
    fn close_tail(&mut self) {
        let pending = &self.tail[self.sent..];
        let chunk = match pending.len() {
            0 => return,
            1..Self::MIN_MOVED_BYTES => {
                let copy = Bytes::copy_from_slice(pending);
                self.tail.clear();
                copy
            }
            _ => Bytes::from(std::mem::take(&mut self.tail)).split_off(self.sent),
        };
        self.sent = 0;
        self.shared += chunk.len();
        self.chunks.push_back(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_bodies_are_copied_together() {
        let mut out = Outbox::new();
        out.extend_from_slice(b"head");
        out.body(Bytes::from_static(b"body"));
        assert_eq!(out.as_single_slice(), Some(&b"headbody"[..]));
    }

    #[test]
    fn order_is_kept_around_a_shared_body_for_any_write_size() {
        for step in [1, 3, 1000, 1 << 20] {
            let mut out = Outbox::new();
            let large = Bytes::from(vec![7; Outbox::SHARE]);
            out.extend_from_slice(b"one");
            out.body(large.clone());
            out.extend_from_slice(b"two");
            let want = [b"one", &large[..], b"two"].concat();
            let mut got = Vec::new();
            while !out.is_empty() {
                let mut slices = [IoSlice::new(&[]); 4];
                let filled = out.slices(&mut slices);
                let all = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>();
                let n = step.min(all.len());
                got.extend_from_slice(&all[..n]);
                out.advance(n);
            }
            assert_eq!(got, want);
        }
    }

    #[test]
    fn append_to_adds_after_the_existing_bytes() {
        for length in [0, 3, Outbox::SHARE, 3 * Outbox::SHARE] {
            let (mut from, mut to) = (Outbox::new(), Outbox::new());
            to.extend_from_slice(b"first");
            from.body(Bytes::from(vec![1; length]));
            from.extend_from_slice(&vec![2; length]);
            let want = [&b"first"[..], &vec![1; length], &vec![2; length]].concat();
            from.append_to(&mut to);
            assert!(from.is_empty());
            assert_eq!(to.take(), want);
        }
    }

    #[test]
    fn sent_part_of_the_tail_is_not_sent_again() {
        let mut out = Outbox::new();
        out.extend_from_slice(b"abc");
        out.advance(2);
        out.body(Bytes::from(vec![0; Outbox::SHARE]));
        assert_eq!(out.len(), 1 + Outbox::SHARE);
        assert_eq!(out.take()[0], b'c');
    }
}

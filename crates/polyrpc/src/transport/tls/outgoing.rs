use std::cell::Cell;
use std::mem;

/// Records on their way to the socket.
///
/// The memory is borrowed from the thread for as long as there are any, so that an idle connection holds none.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// As long as it can be: what is behind `end` is room.
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    /// Room to write records into.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = borrow();
        }
        &mut self.buffer[self.end..]
    }

    /// Makes room for so many bytes.
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.room().len() < bytes {
            self.buffer.resize(self.end + bytes, 0);
        }
    }

    /// So many bytes of the room were written.
    pub(super) fn fill(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.buffer.len());
    }

    /// So many bytes have left.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.begin += bytes;
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
            give_back(mem::take(&mut self.buffer));
        }
    }
}

/// Four records of full length: what is worth one write.
const SIZE: usize = 4 * (RECORD + OVERHEAD);
/// Bytes of plaintext in a record, at most (RFC 8446, section 5.1).
pub(super) const RECORD: usize = 16 << 10;
/// More than any cipher of TLS 1.2 and 1.3 adds to a record.
const OVERHEAD: usize = 64;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn borrow() -> Vec<u8> {
    let spare = SPARE.take();
    if spare.is_empty() { vec![0; SIZE] } else { spare }
}

fn give_back(buffer: Vec<u8>) {
    // A long chain of certificates needs not be remembered for ever.
    if buffer.len() == SIZE {
        SPARE.set(buffer);
    }
}

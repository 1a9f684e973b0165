use std::cell::Cell;
use std::mem;

/// Records to be written to the socket.
///
/// The memory is borrowed from the thread while there are any, so that an idle connection holds none.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// At full length: the part after `end` is free.
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

    /// Returns the room to write records into.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = borrow();
        }
        &mut self.buffer[self.end..]
    }

    /// Ensures room for this many bytes.
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.room().len() < bytes {
            self.buffer.resize(self.end + bytes, 0);
        }
    }

    /// Marks this many bytes of the room as written.
    pub(super) fn fill(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.buffer.len());
    }

    /// Removes this many sent bytes.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.begin += bytes;
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
            return_buffer(mem::take(&mut self.buffer));
        }
    }
}

/// Four records of full length: enough for one write.
const SIZE: usize = 4 * (RECORD + OVERHEAD);
/// Maximum size of a record's plaintext (RFC 8446, section 5.1).
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

fn return_buffer(buffer: Vec<u8>) {
    // A buffer that grew for a long certificate chain is not kept.
    if buffer.len() == SIZE {
        SPARE.set(buffer);
    }
}

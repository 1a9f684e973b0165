//! A write buffer that a thread's connections share in turn, so that an idle connection holds none.

use std::cell::Cell;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes the thread's buffer, or creates one if another connection has it.
pub(crate) fn borrow() -> Vec<u8> {
    let spare = SPARE.take();
    if spare.capacity() > 0 { spare } else { Vec::with_capacity(SIZE) }
}

/// Returns a buffer to the thread.
pub(crate) fn return_buffer(buffer: Vec<u8>) {
    // One that grew beyond the usual size is dropped: a burst must not occupy memory forever.
    if buffer.capacity() <= MAX_KEPT_CAPACITY {
        SPARE.set(buffer);
    }
}

/// Room for a batch of small responses.
const SIZE: usize = 16 << 10;
const MAX_KEPT_CAPACITY: usize = 256 << 10;

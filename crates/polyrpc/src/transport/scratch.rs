//! A buffer to write into that a thread's connections borrow in turn, so that an idle one holds none.

use std::cell::Cell;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes the thread's buffer, or a new one if another connection has it.
pub(crate) fn borrow() -> Vec<u8> {
    let spare = SPARE.take();
    if spare.capacity() > 0 { spare } else { Vec::with_capacity(SIZE) }
}

/// Gives a buffer back to the thread.
pub(crate) fn return_buffer(buffer: Vec<u8>) {
    // One that grew beyond the usual is not kept: a burst must not be remembered for ever.
    if buffer.capacity() <= KEPT {
        SPARE.set(buffer);
    }
}

/// Room for a round of small answers.
const SIZE: usize = 16 << 10;
const KEPT: usize = 256 << 10;

//! How many values a message had that its type has no field for.
//!
//! A codec reads a message in one go on one thread, and has nothing but the value to give back: what it passes over is
//! noted beside it.

use std::cell::Cell;

thread_local! {
    static UNKNOWN: Cell<u64> = const { Cell::new(0) };
}

/// Notes that so many values were passed over.
pub(super) fn add(values: u64) {
    if values > 0 {
        UNKNOWN.set(UNKNOWN.get() + values);
    }
}

/// Tells how many values were passed over while `read` read a message.
#[cold]
pub(crate) fn counting_unknown<T>(read: impl FnOnce() -> T) -> (T, u64) {
    let before = UNKNOWN.take();
    let value = read();
    (value, UNKNOWN.replace(before))
}

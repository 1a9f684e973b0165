//! Number of values in a message for which the type has no field.
//!
//! A codec decodes a message in one go on one thread, and can return only the value: skipped values are counted in a
//! thread-local.

use std::cell::Cell;

thread_local! {
    static UNKNOWN: Cell<u64> = const { Cell::new(0) };
}

/// Adds this number of skipped values.
pub(super) fn add(values: u64) {
    if values > 0 {
        UNKNOWN.set(UNKNOWN.get() + values);
    }
}

/// Returns the number of values that were skipped while `read` decoded a message.
#[cold]
pub(crate) fn count_unknown<T>(read: impl FnOnce() -> T) -> (T, u64) {
    let before = UNKNOWN.take();
    let value = read();
    (value, UNKNOWN.replace(before))
}

//! The calls of one thread, independent of the kind of calls and of the clock.

pub(crate) mod clock;

pub(crate) mod call_error;
pub(crate) mod slots;

pub(crate) mod record;

pub(crate) mod driver;

#[cfg(test)]
mod tests;

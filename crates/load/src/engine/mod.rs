//! One thread's calls, independent of what is called and of whose clock it is.

pub(crate) mod clock;

pub(crate) mod call_error;
pub(crate) mod slots;

pub(crate) mod record;

pub(crate) mod driver;

#[cfg(test)]
mod tests;

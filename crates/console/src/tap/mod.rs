//! Live calls: those that end while a watch exists, filtered, and bounded in rate and in time.
//!
//! A call that ends is offered to every open [`Tap`]. That neither waits nor allocates unless a tap wants the call, and it
//! is one load while there is no tap.

mod call;
mod filter;

mod hub;

pub(crate) use self::call::{Facts, TapCall};
pub(crate) use self::filter::{Filter, Outcome};
pub(crate) use self::hub::{CALLS_PER_SECOND, Tap, is_open, offer};

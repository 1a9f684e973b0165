//! Live calls: those that end while a tap is open, filtered, and limited in rate and in time.
//!
//! Every call that ends is offered to the open [taps](Tap), which never waits. It allocates only if a tap wants the
//! call, and costs one atomic load while no tap is open.

mod call;
mod filter;

mod hub;

pub(crate) use self::call::{Facts, TapCall};
pub(crate) use self::filter::{Filter, Outcome};
pub(crate) use self::hub::{CALLS_PER_SECOND, Tap, is_open, offer};

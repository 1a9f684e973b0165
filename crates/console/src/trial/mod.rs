//! Calls that users make: over a real connection to a listener of an observed server, and to no other address.

mod call;
mod example;
mod stream;

pub(crate) use self::call::{PROTOCOLS, STREAMING, Trial, TrialResult, local_address, url};
pub(crate) use self::example::example;

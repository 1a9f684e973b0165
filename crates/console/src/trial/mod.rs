//! Calls of the servers' methods, made by hand: over the real wire, to a listener of an observed server, and nowhere else.

mod call;

mod example;

pub(crate) use self::call::{PROTOCOLS, Trial, TrialResult, local_address, url};
pub(crate) use self::example::example;

//! Calls of the servers' methods, made by hand: over the real wire, to a listener of an observed server, and nowhere else.

mod call;
mod example;
mod stream;

pub(crate) use self::call::{PROTOCOLS, STREAMING, Trial, TrialResult, local_address, url};
pub(crate) use self::example::example;

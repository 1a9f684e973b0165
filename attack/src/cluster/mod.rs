//! Servers in separate processes that can be restarted at the same addresses, and clients that call all of them: one
//! client per protocol and transport.

mod addresses;
mod authority;
mod combinations;
mod replica;

pub(crate) use self::addresses::Addresses;
pub(crate) use self::authority::Authority;
pub(crate) use self::combinations::{Caller, Combination, combinations, with_hedging};
pub(crate) use self::replica::{Options, Replica, serve};

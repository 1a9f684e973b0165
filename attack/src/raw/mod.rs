//! Bytes of every protocol, written by hand: an attacker says whatever it likes.

pub(crate) mod frames;
pub(crate) mod h2;

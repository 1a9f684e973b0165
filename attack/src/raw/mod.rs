//! Handwritten bytes of every protocol: an attacker can send anything.

pub(crate) mod frames;
pub(crate) mod h2;

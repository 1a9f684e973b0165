//! Consistent hashing: calls with the same key go to the same server, also when other servers come and go.
//!
//! [`PickContext::key`](super::PickContext::key) is the key. If the caller sets none, it is the hash of service, method
//! and encoded request (of a long request, its beginning). [`key`] computes the key that rpcx's Go clients derive from
//! the same arguments. brpc's request codes are 32 bits; longer keys are folded onto a [`Ring`].

mod double_jump;
mod go;
mod jump;
mod key;
mod murmur;
mod ring;

pub use self::double_jump::DoubleJump;
pub use self::jump::Jump;
pub use self::key::{ArgumentPassing, key};
pub use self::ring::Ring;

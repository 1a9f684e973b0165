//! Consistent hashing: calls with the same key go to the same server, also when other servers come and go.
//!
//! brpc's request codes are 32 bits; longer keys are folded onto a [`Ring`].

mod double_jump;
mod go;
mod jump;
mod key;
mod murmur;
mod ring;

pub use self::key::{rpcx_key, rpcx_key_by_value};
pub use self::ring::Ring;

pub(super) use self::double_jump::DoubleJump;
pub(super) use self::jump::Jump;

//! Equal calls meet the same server, and stay with it when others come and go.
//!
//! Which calls are equal is told by [`Asked::key`](super::Asked::key). Where the caller says none, it is the hash of
//! service, method and encoded request (of a long one, its beginning). [`key`] makes the one that rpcx's clients in Go
//! make of the same arguments; brpc's request codes are 32 bits, and longer keys are folded onto a [`Ring`].

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

//! HTTP/2 (RFC 9113) as a state machine for both sides, and its header compression ([`hpack`], RFC 7541).
//!
//! Nothing here knows what the messages mean: gRPC and JSON over HTTP/2 stand on it.
//!
//! [`Connection`] is the memory of one connection (`connection.rs`). A frame (`frame.rs`) that came does what
//! `receive.rs` says; what this side sends is in `send.rs`. Each stream (`stream.rs`) is kept in a table
//! (`streams.rs`) until it is closed, and remembered a little longer (`closed.rs`). `message.rs` tells what a header
//! list means, `settings.rs` what each side told of itself, `status.rs` why things end. `guard.rs` counts what only an
//! attacker does often, `clock.rs` says what the time does to a connection; `audit.rs` what must always hold.

mod audit;
mod clock;
mod closed_streams;
mod connection;
mod frame;
mod guard;
pub mod hpack;
mod message;
mod receive;
mod send;
mod settings;
mod status;
mod stream;
mod streams;

use polyrpc_core::Detected;
use polyrpc_core::protocol::by_magic;

pub use connection::{Config, Connection, Event, UPGRADED};
pub use settings::Settings;
pub use status::ErrorCode;

/// What a client sends first.
pub const PREFACE: &[u8] = frame::PREFACE;

/// Whether a connection that begins with `start` speaks this protocol, with gRPC as the first of what it carries.
pub(crate) fn recognise(start: &[u8]) -> Detected {
    by_magic(PREFACE, start)
}

#[cfg(test)]
mod tests;

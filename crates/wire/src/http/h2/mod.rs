//! HTTP/2 (RFC 9113) as a state machine for both sides, and its header compression ([`hpack`], RFC 7541).
//!
//! The messages are opaque here: gRPC and JSON over HTTP/2 are built on it.
//!
//! [`Connection`] is the state of one connection (`connection.rs`). `receive.rs` processes received frames
//! (`frame.rs`), `send.rs` sends them, `go_away.rs` shuts the connection down. Each stream (`stream.rs`) is kept in a
//! table (`streams.rs`) until it is closed, and remembered a little longer (`closed_streams.rs`). `message.rs`
//! validates header lists, `settings.rs` holds the SETTINGS of each side, `status.rs` the error codes. `announce.rs`
//! announces larger limits to peers that send much, `long_frame.rs` reads their frames; `long_frame_state.rs` is the
//! state of both.
//! `guard.rs` counts abusive behaviour, `clock.rs` handles timeouts, `invariants.rs` checks invariants.

mod announce;
mod clock;
mod closed_streams;
mod connection;
mod frame;
mod go_away;
mod guard;
pub mod hpack;
mod invariants;
mod long_frame;
mod long_frame_state;
mod message;
mod receive;
mod send;
mod settings;
mod status;
mod stream;
mod streams;

use polyrpc_core::Detection;
use polyrpc_core::protocol::by_magic;

pub use connection::{Config, Connection, Event, UPGRADED};
pub use guard::MAX_STRAY_FRAMES;
pub use settings::Settings;
pub use status::ErrorCode;

/// The client's connection preface.
pub const PREFACE: &[u8] = frame::PREFACE;

/// Detects from the first bytes whether a connection uses this protocol; it is reported as gRPC, the first protocol
/// that HTTP/2 carries.
pub(crate) fn recognise(start: &[u8]) -> Detection {
    by_magic(PREFACE, start)
}

#[cfg(test)]
mod tests;

//! Limits of a connection.

use std::time::Duration;

/// Limits of a connection. Every length announced by a peer is checked against them before memory is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of one message on the wire in bytes, headers included. 64 MiB, as brpc's `max_body_size`.
    pub message: usize,
    /// Maximum size of one message after decompression in bytes. 64 MiB.
    pub decompressed: usize,
    /// Maximum size of a header without a length of its own (an HTTP head) in bytes. 64 KiB.
    pub header: usize,
    /// Timeouts of messages, for sessions with several incomplete ones at a time (HTTP/2).
    pub pace: SlowPeerGuard,
}

/// Timeouts of an incomplete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowPeerGuard {
    /// Interval in which the rate is checked. 10 s.
    pub interval: Duration,
    /// Minimum number of bytes per second, averaged over an interval. 1 KiB.
    pub rate: usize,
    /// Maximum time from the first byte of a message to its last. 2 minutes.
    pub message_timeout: Duration,
}

impl SlowPeerGuard {
    /// The default values.
    pub const DEFAULT: Self =
        Self { interval: Duration::from_secs(10), rate: 1 << 10, message_timeout: Duration::from_secs(120) };
}

impl Default for SlowPeerGuard {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 64 << 20, decompressed: 64 << 20, header: 64 << 10, pace: SlowPeerGuard::default() }
    }
}

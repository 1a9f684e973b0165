//! Streams attached to a call (brpc).

use std::time::Duration;

use crate::StreamId;

/// Streams that a caller offers with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedStreams {
    /// Identifier of the first stream; those of the others follow it.
    pub first: StreamId,
    /// Number of streams; 0 if the connection has no room for them.
    pub streams: usize,
    /// Whether the caller accepts messages.
    pub writable: bool,
}

/// Options of the streams that this side attaches to a call. The sizes have the names that they have in
/// brpc's `StreamOptions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Maximum number of bytes sent but not consumed; the message that exceeds it is the last. 0: unlimited, and the
    /// peer need not report what it consumes. Default: 2 MiB.
    pub max_buf_size: usize,
    /// The same at the start, and while the streams of the connection together have too many unconsumed
    /// bytes; 0: none. It has an effect only if the connection limits these bytes (brpc's flag
    /// `socket_max_streams_unconsumed_bytes`); clients and servers of `polyrpc` do not limit them. Default: 1
    /// MiB.
    pub min_buf_size: usize,
    /// Whether this side accepts messages. If not, the peer is asked to send none.
    pub receives: bool,
    /// Time without messages after which this side ends the stream; `None`: limited by the connection only. It applies
    /// to one side and is not sent to the other, so the driver implements it; a server rounds it up to its ticks.
    /// brpc's `idle_timeout_ms` only notifies its user.
    pub idle_timeout: Option<Duration>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { max_buf_size: 2 << 20, min_buf_size: 1 << 20, receives: true, idle_timeout: None }
    }
}

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Backoff between connection attempts, with a jitter of a fifth.
///
/// An attempt has failed if no connection could be established, or if the connection ended before any reply (the first
/// such connection is replaced at once). The first reply resets the backoff.
#[derive(Debug, Clone)]
pub struct Backoff {
    /// Pause after the first failure. 100 ms.
    pub initial: Duration,
    /// Longest pause. 10 s.
    pub max: Duration,
    /// Growth of the pause per failure. 1.6.
    pub factor: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_millis(100), max: Duration::from_secs(10), factor: 1.6 }
    }
}

impl Backoff {
    /// Default of a client of one server. At most two connects a second, where gRPC starts with one: a restarted server
    /// is to be noticed soon. At most five seconds between them, where gRPC waits up to two minutes: a connect every
    /// five seconds costs a server nothing, and RPC callers want the server as soon as it is back.
    pub(in crate::client) fn single_server() -> Self {
        Self { initial: Duration::from_millis(500), max: Duration::from_secs(5), factor: 1.6 }
    }
}

/// Returns a random number from zero to one. Each state of the standard hasher starts with keys of its own, which is
/// random enough here.
pub(in crate::client) fn chance() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// How long to wait between attempts to connect, give or take a fifth.
///
/// An attempt has failed if no connection could be made, or if it ended before any reply came on it (the first such
/// connection is replaced at once). The first reply ends the failure.
#[derive(Debug, Clone)]
pub struct Backoff {
    /// After the first failure. 100 ms.
    pub initial: Duration,
    /// At most. 10 s.
    pub max: Duration,
    /// How much longer each time. 1.6.
    pub factor: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_millis(100), max: Duration::from_secs(10), factor: 1.6 }
    }
}

impl Backoff {
    /// The default of a client of one server. At most two dials a second, where gRPC begins with one: a server that
    /// restarts is to be noticed soon. At most five seconds between them, where gRPC goes up to two minutes: a connection attempt every
    /// five seconds costs no server anything, and callers of RPC want the server as soon as it is back.
    pub(in crate::client) fn single_server() -> Self {
        Self { initial: Duration::from_millis(500), max: Duration::from_secs(5), factor: 1.6 }
    }
}

/// From zero to one. Each state of the standard hasher begins with keys of its own: chance enough for this.
pub(in crate::client) fn chance() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

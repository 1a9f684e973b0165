use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Pauses that grow from one failure to the next: between attempts to connect
/// ([`Builder::connect_backoff`](crate::client::Builder::connect_backoff)), or between the attempts of one
/// call ([`Builder::retry_backoff`](crate::client::Builder::retry_backoff)). These settings have defaults of
/// their own, and each varies the pauses at random in its own way.
#[derive(Debug, Clone)]
pub struct Backoff {
    /// Pause after the first failure. 100 ms in [`Backoff::default`].
    pub initial: Duration,
    /// Longest pause. 10 s in [`Backoff::default`].
    pub max: Duration,
    /// Factor by which the pause grows per failure. 1.6 in [`Backoff::default`].
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

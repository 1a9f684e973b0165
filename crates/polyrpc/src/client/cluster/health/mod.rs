//! Whether a server that had no calls may have them again: what is asked says [`HealthCheck`], and [`question`] asks it.

mod probe;

use std::time::Duration;

pub(super) use self::probe::HealthProbe;

/// How a server is asked whether it is well, when it was isolated by a [breaker](super::Breaker) or could not be
/// reached, or [always](Self::always).
///
/// Whatever is asked, a connection is made first; to a server that was isolated a new one, which takes the place of
/// those there are, since they may be what was broken. Servers are asked by a task of the client, which ends with it,
/// 32 at most at the same time.
///
/// ```
/// use std::time::Duration;
///
/// use polyrpc::Client;
/// use polyrpc::client::{Breaker, Health};
///
/// # fn main() -> polyrpc::Result<()> {
/// let client = Client::builder("grpc+list://10.0.0.1:50051,10.0.0.2:50051")
///     .breaker(Breaker::brpc())
///     .health(HealthCheck::grpc("example.Arith").every(Duration::from_secs(1)))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    pub(super) question: HealthProbe,
    pub(in crate::client) every: Duration,
    pub(super) timeout: Duration,
    pub(super) always: bool,
}

impl HealthCheck {
    /// A server is well to which a connection can be made. The default.
    pub fn connect() -> Self {
        Self::by(HealthProbe::Connect)
    }

    /// A server is well that says so of this service by `grpc.health.v1.Health`, in whatever protocol the client speaks;
    /// of the server as a whole if the name is empty. One that does not know the service, or the question, is not.
    pub fn grpc(service: impl Into<String>) -> Self {
        Self::by(HealthProbe::Grpc(service.into()))
    }

    /// A server is well that answers the protocol's own heartbeat, on a connection of its own (rpcx); one whose protocol
    /// has none that may be sent at any time, if a connection can be made.
    pub fn heartbeat() -> Self {
        Self::by(HealthProbe::Heartbeat)
    }

    /// A server is well that answers `GET path` with 2xx, at the same address by HTTP/1.1, as brpc's servers do whatever
    /// else they speak there (brpc's `health_check_path`).
    pub fn http(path: impl Into<String>) -> Self {
        let path = path.into();
        Self::by(HealthProbe::Http(if path.starts_with('/') { path } else { format!("/{path}") }))
    }

    fn by(question: HealthProbe) -> Self {
        Self { question, every: EVERY, timeout: TIMEOUT, always: false }
    }

    /// How long to wait after an answer, or none, before the question is asked again. A server that cannot be reached is
    /// tried after the client's [backoff](super::super::Builder::backoff), but no later than this. Default: 3 s.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval.max(SHORTEST);
        self
    }

    /// How long an answer is waited for once there is a connection; how long that is waited for says
    /// [`connect_timeout`](super::super::Builder::connect_timeout). Default: 500 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Asks servers that are thought to be well too, all of them in every interval. One that is not gets no calls until
    /// it is.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.always = true;
        self
    }
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self::connect()
    }
}

/// brpc `socket.cpp`, `health_check_interval`.
const EVERY: Duration = Duration::from_secs(3);
/// brpc `details/health_check.cpp`, `health_check_timeout_ms`.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The shortest interval between checks, which spares the servers.
const SHORTEST: Duration = Duration::from_millis(1);

//! Health checks of servers that get no calls: [`HealthCheck`] is the configuration, [`probe`] runs the check.

mod probe;

use std::time::Duration;

pub(super) use self::probe::HealthProbe;

/// Health check of a server that was ejected by a [circuit breaker](super::CircuitBreaker) or was unreachable, or of
/// [all](Self::always).
///
/// Each check starts with a connection. An ejected server gets a new one, which replaces the existing ones, since they
/// may be broken. A task of the client checks the servers, at most 32 concurrently, and ends with the client.
///
/// ```
/// use std::time::Duration;
///
/// use polyrpc::Client;
/// use polyrpc::client::{CircuitBreaker, HealthCheck};
///
/// # fn main() -> polyrpc::Result<()> {
/// let client = Client::builder("grpc+list://10.0.0.1:50051,10.0.0.2:50051")
///     .circuit_breaker(CircuitBreaker::brpc())
///     .health_check(HealthCheck::grpc("example.Arith").interval(Duration::from_secs(1)))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    pub(super) probe: HealthProbe,
    pub(in crate::client) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) always: bool,
}

impl HealthCheck {
    /// Checks that a connection can be established. The default.
    pub fn connect() -> Self {
        Self::new(HealthProbe::Connect)
    }

    /// Checks that the server reports this service as serving by `grpc.health.v1.Health`, in the client's protocol; the
    /// server as a whole if the name is empty. A server that does not know the service or the method is unhealthy.
    pub fn grpc(service: impl Into<String>) -> Self {
        Self::new(HealthProbe::Grpc(service.into()))
    }

    /// Checks that the server answers the protocol's own heartbeat, on a separate connection (rpcx). For a protocol
    /// without a heartbeat that may be sent at any time, checks that a connection can be established.
    pub fn heartbeat() -> Self {
        Self::new(HealthProbe::Heartbeat)
    }

    /// Checks that the server answers `GET path` with 2xx, at the same address by HTTP/1.1, which brpc's servers use
    /// there in addition to any other protocol (brpc's `health_check_path`).
    pub fn http(path: impl Into<String>) -> Self {
        let path = path.into();
        Self::new(HealthProbe::Http(if path.starts_with('/') { path } else { format!("/{path}") }))
    }

    fn new(probe: HealthProbe) -> Self {
        Self { probe, interval: DEFAULT_INTERVAL, timeout: DEFAULT_TIMEOUT, always: false }
    }

    /// Sets the pause between a check and the next one. An unreachable server is tried after the client's
    /// [connect backoff](super::super::Builder::connect_backoff), but no later than this. Default: 3 s.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(MIN_INTERVAL);
        self
    }

    /// Sets the timeout of the answer once there is a connection;
    /// [`connect_timeout`](super::super::Builder::connect_timeout) limits the connection itself. Default: 500 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Also checks servers that are considered healthy, all of them in every interval. A server that fails the check
    /// gets no calls until it passes.
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
const DEFAULT_INTERVAL: Duration = Duration::from_secs(3);
/// brpc `details/health_check.cpp`, `health_check_timeout_ms`.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);
/// The shortest interval between checks, which spares the servers.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

//! Observes a running server from outside.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use polyrpc_payload::schema::Pool;

use super::connections::ConnectionCommand;
use super::registration::RegistrationHandle;
use super::{Limits, Shared};
use crate::introspection::ServerInfo;
use crate::layers::Metrics;
use crate::service::MethodInfo;
use crate::transport::Address;

/// Observes a running server, and drains it: for pages, exporters, and consoles. See
/// [`ServerHandle::monitor`](super::ServerHandle::monitor). Clones observe the same server.
///
/// It does not keep the server running. Once the server is gone, its methods return `None`, `false` or nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use polyrpc::Server;
///
/// let server = Server::new().function("echo", |text: String| async move { text });
/// let running = server.bind("127.0.0.1:0").await?.start();
/// let monitor = running.monitor();
/// assert_eq!(monitor.methods()[0].name, "echo");
/// assert_eq!(monitor.is_serving(""), Some(true));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Monitor {
    server: Weak<Shared>,
    addresses: Arc<[Address]>,
    registration: RegistrationHandle,
}

impl Monitor {
    pub(super) fn new(
        server: Weak<Shared>,
        addresses: Vec<Address>,
        registration: RegistrationHandle,
    ) -> Self {
        Self { server, addresses: addresses.into(), registration }
    }

    /// Returns the addresses of all listeners, in the order in which they were bound.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the server's counters, its current load, and its open connections.
    pub fn info(&self) -> Option<ServerInfo> {
        Some(self.server()?.open.facts())
    }

    /// Returns what [`info`](Self::info) does, without the connections: at a lower cost.
    pub fn summary(&self) -> Option<ServerInfo> {
        Some(self.server()?.open.summary())
    }

    /// Returns the number of open connections.
    pub fn connection_count(&self) -> usize {
        self.server().map_or(0, |server| server.open.len())
    }

    /// Returns every method under its own name, without aliases, sorted by service and name. Functions come first.
    pub fn methods(&self) -> Vec<MethodInfo> {
        self.server().map(|server| server.router.describe()).unwrap_or_default()
    }

    /// Returns the descriptors of the services that have some, sorted by the services' names. Services may share them.
    pub fn descriptors(&self) -> Vec<Pool> {
        let Some(server) = self.server() else { return Vec::new() };
        server.router.described_services().into_iter().flat_map(|(_, schemas)| schemas.to_vec()).collect()
    }

    /// Whether a service accepts calls, as `GET /readyz` reports it; the empty name means the server as a whole. `None`
    /// if the service is unknown.
    pub fn is_serving(&self, service: &str) -> Option<bool> {
        self.server()?.health.is_serving(service)
    }

    /// Returns the counters of its calls, if it [exports](crate::Server::metrics) or
    /// [counts](crate::Server::count_calls) them.
    pub fn metrics(&self) -> Option<Metrics> {
        self.server()?.metrics.clone()
    }

    /// Returns the version that was [set](crate::Server::version); empty if none was.
    pub fn version(&self) -> String {
        self.server().map(|server| server.version.clone()).unwrap_or_default()
    }

    /// Returns its limits, after those of the system were applied.
    pub fn limits(&self) -> Option<Limits> {
        Some(Limits::clone(&self.server()?.limits))
    }

    /// Returns when it was bound.
    pub fn started(&self) -> Option<SystemTime> {
        Some(self.server()?.started)
    }

    /// Returns a handle to change its attributes in the registries.
    pub fn registration(&self) -> &RegistrationHandle {
        &self.registration
    }

    /// Sets whether the server reports that it is ready: to probes, to callers of `grpc.health.v1.Health`, and to the
    /// registries, as the attribute `state=inactive`. It accepts calls in any case. Returns whether the server
    /// runs and is not shutting down.
    pub fn set_ready(&self, ready: bool) -> bool {
        let Some(server) = self.server() else { return false };
        if !server.own_health.pause(!ready) {
            return false;
        }
        match ready {
            true => self.registration.remove("state"),
            false => self.registration.set("state", "inactive"),
        }
        true
    }

    /// Drains every connection: it finishes its calls in flight, accepts no new ones, and closes. Returns the number of
    /// connections.
    pub fn drain_connections(&self) -> usize {
        self.server().map_or(0, |server| {
            server.open.send_command_to_all(ConnectionCommand::Drain);
            server.open.len()
        })
    }

    /// Drains a connection: it finishes its calls in flight, accepts no new ones, and closes. Returns whether it is
    /// open.
    pub fn drain_connection(&self, id: u64) -> bool {
        self.send_command(id, ConnectionCommand::Drain)
    }

    /// Records that the peer of a connection has shown a valid credential, on a listener that [expects
    /// one](super::Listen::expect_credentials).
    #[doc(hidden)]
    pub fn prove_connection(&self, id: u64) {
        if let Some(server) = self.server() {
            server.open.prove(id);
        }
    }

    /// Closes a connection at once; its calls in flight are cancelled. Returns whether it is open.
    pub fn close_connection(&self, id: u64) -> bool {
        self.send_command(id, ConnectionCommand::Close)
    }

    fn send_command(&self, id: u64, command: ConnectionCommand) -> bool {
        self.server().is_some_and(|server| server.open.send_command_to(id, command))
    }

    fn server(&self) -> Option<Arc<Shared>> {
        self.server.upgrade()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

//! Consul's service catalogue: `resolver` finds its healthy instances, `registrar` enters servers.

mod format;
mod registrar;
mod resolver;

use std::collections::HashMap;
use std::sync::Mutex;

use polyrpc::discovery::Advertisement;

pub use self::resolver::ServiceDiscovery;

use super::Consul;

/// Consul's service catalogue. A server is registered with the local agent, with a TTL check that must be renewed;
/// Consul removes a server whose check has failed for a minute.
#[derive(Debug)]
pub struct Services {
    consul: Consul,
    written: InstanceFormat,
    /// Entries that were registered here, by id.
    registered: Mutex<HashMap<String, Advertisement>>,
}

/// Format of an instance.
#[derive(Debug, Clone, Copy)]
enum InstanceFormat {
    /// Address, port, weight and metadata in Consul's own fields.
    Plainly,
    /// `network@host:port` as the address, and the attributes as the only tag.
    LegacyRpcx,
}

impl Services {
    pub(super) fn new(consul: Consul) -> Self {
        Self { consul, written: InstanceFormat::Plainly, registered: Mutex::default() }
    }

    /// Registers instances in the format of rpcx 1 (v1.1, `serverplugin/consul.go`), for its clients. Discovery
    /// understands both formats.
    #[must_use]
    pub fn legacy_rpcx_format(mut self) -> Self {
        self.written = InstanceFormat::LegacyRpcx;
        self
    }

    /// Discovers the instances of one service that pass their checks.
    pub fn service(&self, name: impl Into<String>) -> ServiceDiscovery {
        ServiceDiscovery::new(self.consul.clone(), name.into())
    }
}

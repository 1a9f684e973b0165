//! A server that a console observes.

use std::sync::Arc;

use polyrpc::Address;
use polyrpc::server::Monitor;
use polyrpc::service::MethodInfo;

use crate::controls::Controls;

/// A server with the name that brpc's variables give it.
#[derive(Debug, Clone)]
pub(crate) struct ObservedServer {
    /// Unique within the console.
    pub(crate) id: u64,
    pub(crate) monitor: Monitor,
    /// Its methods, which do not change while it runs.
    pub(crate) methods: Arc<[Arc<MethodInfo>]>,
    pub(crate) controls: Arc<Controls>,
}

impl ObservedServer {
    pub(crate) fn new(id: u64, monitor: Monitor) -> Self {
        let methods = monitor.methods().into_iter().map(Arc::new).collect();
        let controls = Arc::new(Controls::list(&monitor, &port(&monitor)));
        Self { id, monitor, methods, controls }
    }

    /// Returns the first address.
    pub(crate) fn address(&self) -> String {
        self.monitor.addresses().first().map(Address::to_string).unwrap_or_default()
    }

    /// Returns the port of the first address, after which brpc names a server; `unix` if it has none.
    pub(crate) fn port(&self) -> String {
        port(&self.monitor)
    }

    /// Returns the prefix of its variables: `rpc_server_8000`.
    pub(crate) fn prefix(&self) -> String {
        format!("rpc_server_{}", self.port())
    }
}

fn port(monitor: &Monitor) -> String {
    let address = monitor.addresses().first().map(Address::to_string).unwrap_or_default();
    match address.rsplit_once(':') {
        Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.to_owned(),
        _ => "unix".to_owned(),
    }
}

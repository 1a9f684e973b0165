//! rpcx's keys: `resolver` finds the instances that they name, `registrar` writes them.

mod registrar;
mod resolver;

use std::collections::HashMap;
use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

pub use self::resolver::KeyDiscovery;

use super::Consul;

/// rpcx's keys under one path: `base/Service/network@host:port`, each with the instance's attributes as its value
/// (rpcx-consul `serverplugin/consul.go`).
///
/// An entry belongs to a session with the behaviour *delete*, which Consul ends between one and two times its
/// time-to-live after the last renewal. The time-to-live is at least ten seconds.
#[derive(Debug)]
pub struct Keys {
    consul: Consul,
    /// Without leading and trailing slashes.
    base: String,
    /// Sessions of the keys that were registered here.
    sessions: Mutex<HashMap<String, String>>,
}

impl Keys {
    pub(super) fn new(consul: Consul, base: &str) -> Self {
        Self { consul, base: base.trim_matches('/').to_owned(), sessions: Mutex::default() }
    }

    /// Discovers the instances of one service.
    pub fn service(&self, name: impl AsRef<str>) -> KeyDiscovery {
        KeyDiscovery::new(self.consul.clone(), format!("{}/", self.service_path(name.as_ref())))
    }

    fn service_path(&self, name: &str) -> String {
        if self.base.is_empty() { name.to_owned() } else { format!("{}/{name}", self.base) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pair {
    key: String,
    value: Option<String>,
    session: Option<String>,
}

impl Pair {
    /// Value, decoded from base64.
    fn decode_value(&self) -> Option<Vec<u8>> {
        STANDARD.decode(self.value.as_deref().unwrap_or_default()).ok()
    }

    fn has_value(&self, value: &str) -> bool {
        self.decode_value().is_some_and(|decoded_value| decoded_value == value.as_bytes())
    }
}

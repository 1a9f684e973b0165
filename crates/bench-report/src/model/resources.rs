//! What a run cost.

use serde::{Deserialize, Serialize};

/// Both processes during the measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// The load generator.
    pub client: Process,
    /// The server.
    pub server: Process,
}

/// A process during the measurement. Unknown values are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// User and system CPU time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// Largest resident memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rss_bytes: Option<u64>,
    /// Why values are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

impl Process {
    /// CPU time per call in microseconds.
    pub fn cpu_us_per_call(&self, calls: u64) -> Option<f64> {
        self.cpu_s.filter(|_| calls > 0).map(|spent| spent * 1e6 / calls as f64)
    }
}

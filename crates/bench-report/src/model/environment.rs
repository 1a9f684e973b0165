//! Where, when and how a measurement was made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is needed to repeat a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// Start of the measurement in seconds since 1970, UTC.
    pub started_s: f64,
    /// The command line, quoted for a shell.
    pub command: String,
    /// The program that measured.
    pub build: Build,
    /// The machine that ran the load generator.
    pub machine: Machine,
    /// Versions of others that took part: compilers, peers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
    /// Seed of everything random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// A build of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Name of the program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Commit that it was built from, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A machine. Values that cannot be found out are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Number of cores that the process may use.
    pub cores: u64,
    /// Operating system and version of its kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Whether it is a virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_virtual: Option<bool>,
    /// Frequency governor of its first core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Load averages of the last 1, 5 and 15 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<String>,
}

/// The server and the method that were called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// URL of the server.
    pub url: String,
    /// The method; the name of the mix if several were called.
    pub method: String,
    /// Format of the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Size of a request's message in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// Size of the first reply's message in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_bytes: Option<u64>,
}

//! A pair of client and server under one load.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

use crate::model::Latency;

/// Measurements of a pair under a case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The case.
    pub case: String,
    /// The pair.
    pub pair: String,
    /// Whether this is the second measurement of the pair in each round, which shows how much it differs from itself.
    #[serde(default)]
    pub is_control: bool,
    /// One for each round that was measured.
    pub windows: Vec<Window>,
    /// Latencies of all windows together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Why it could not take part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// What went wrong, so that it has no windows, or fewer than planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether the failure means that the windows before it say nothing either: the server answers wrongly.
    #[serde(default)]
    pub is_wrong: bool,
    /// The commands of the client and of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// Figures of one window. Unknown ones are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The round, from 0.
    pub round: u64,
    /// Successful calls per second.
    pub rate: f64,
    /// Successful calls.
    pub succeeded: u64,
    /// Failed calls.
    #[serde(default)]
    pub failed: u64,
    /// Mean latency in nanoseconds.
    pub mean_ns: f64,
    /// Shortest latency in nanoseconds.
    pub min_ns: u64,
    /// Longest latency in nanoseconds.
    pub max_ns: u64,
    /// Quantiles of the latency in nanoseconds by name, such as `p99`: those that have enough calls.
    pub quantiles_ns: BTreeMap<String, u64>,
    /// CPU time of the client per call in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cpu_ns: Option<f64>,
    /// CPU time of the server per call in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu_ns: Option<f64>,
    /// Largest resident memory of the client in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_rss_bytes: Option<u64>,
    /// Largest resident memory of the server in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_rss_bytes: Option<u64>,
    /// Bytes that the client allocated for a call, if it counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<f64>,
    /// Allocations of the client for a call, if it counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations: Option<f64>,
    /// Why the window says nothing about the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}

/// A figure of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Successful calls per second.
    Rate,
    /// Mean latency.
    Mean,
    /// Shortest latency.
    Min,
    /// 10th percentile of the latency.
    P10,
    /// 25th percentile.
    P25,
    /// Median.
    P50,
    /// 75th percentile.
    P75,
    /// 90th percentile.
    P90,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
    /// Longest latency.
    Max,
    /// CPU time of the client per call.
    ClientCpu,
    /// CPU time of the server per call.
    ServerCpu,
    /// CPU time of client and server together, as a share of one core.
    CpuShare,
    /// Largest resident memory of the client.
    ClientMemory,
    /// Largest resident memory of the server.
    ServerMemory,
    /// Largest resident memory of both.
    Memory,
    /// Bytes that the client allocates for a call.
    AllocatedBytes,
    /// Allocations of the client for a call.
    Allocations,
}

impl Cell {
    /// Whether a window of it says nothing about the server.
    pub fn is_invalid(&self) -> bool {
        self.is_wrong || self.windows.iter().any(|window| window.invalid.is_some())
    }

    /// Rounds and their figures. Invalid windows have none.
    pub fn values(&self, measure: Measure) -> Vec<(u64, f64)> {
        let valid = self.windows.iter().filter(|window| window.invalid.is_none() && !self.is_wrong);
        valid.filter_map(|window| Some((window.round, window.get(measure)?))).collect()
    }

    /// Calls that failed in all windows.
    pub fn failed(&self) -> u64 {
        self.windows.iter().map(|window| window.failed).sum()
    }
}

impl Window {
    /// Names and quantiles of [`Self::quantiles_ns`].
    pub const QUANTILES: [(&str, f64); 7] = [
        ("p10", 0.1),
        ("p25", 0.25),
        ("p50", 0.5),
        ("p75", 0.75),
        ("p90", 0.9),
        ("p95", 0.95),
        ("p99", 0.99),
    ];

    /// A figure, if it is known.
    pub fn get(&self, measure: Measure) -> Option<f64> {
        let quantile = || self.quantiles_ns.get(&measure.to_string()).map(|nanos| *nanos as f64);
        match measure {
            Measure::Rate => Some(self.rate),
            Measure::Mean => Some(self.mean_ns),
            Measure::Min => Some(self.min_ns as f64),
            Measure::Max => Some(self.max_ns as f64),
            Measure::P10
            | Measure::P25
            | Measure::P50
            | Measure::P75
            | Measure::P90
            | Measure::P95
            | Measure::P99 => quantile(),
            Measure::ClientCpu => self.client_cpu_ns,
            Measure::ServerCpu => self.server_cpu_ns,
            Measure::CpuShare => Some((self.client_cpu_ns? + self.server_cpu_ns?) * self.rate / 1e9),
            Measure::ClientMemory => self.client_rss_bytes.map(|bytes| bytes as f64),
            Measure::ServerMemory => self.server_rss_bytes.map(|bytes| bytes as f64),
            Measure::AllocatedBytes => self.allocated_bytes,
            Measure::Allocations => self.allocations,
            Measure::Memory => Some((self.client_rss_bytes? + self.server_rss_bytes?) as f64),
        }
    }
}

impl Measure {
    /// Whether it is a time in nanoseconds.
    pub fn is_time(self) -> bool {
        !(self.is_size() || matches!(self, Self::Rate | Self::CpuShare | Self::Allocations))
    }

    /// Whether it is a size in bytes.
    pub fn is_size(self) -> bool {
        matches!(self, Self::ClientMemory | Self::ServerMemory | Self::Memory | Self::AllocatedBytes)
    }

    /// Whether more of it is better.
    pub fn is_more_better(self) -> bool {
        self == Self::Rate
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "calls/s",
            Self::Mean => "mean",
            Self::Min => "fastest",
            Self::P10 => "p10",
            Self::P25 => "p25",
            Self::P50 => "p50",
            Self::P75 => "p75",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::Max => "slowest",
            Self::ClientCpu => "client CPU per call",
            Self::ServerCpu => "server CPU per call",
            Self::CpuShare => "CPU",
            Self::ClientMemory => "client memory",
            Self::ServerMemory => "server memory",
            Self::Memory => "memory",
            Self::AllocatedBytes => "bytes allocated per call",
            Self::Allocations => "allocations per call",
        })
    }
}

/// A histogram takes much more memory than its encoding, so that a small file could fill it.
pub(super) fn deserialize_bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Cell>, D::Error> {
    struct CellsVisitor;

    impl<'de> serde::de::Visitor<'de> for CellsVisitor {
        type Value = Vec<Cell>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX_CELLS} cells")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut cells = Vec::new();
            while let Some(cell) = all.next_element()? {
                if cells.len() == MAX_CELLS {
                    return Err(A::Error::custom(format_args!("there are more than {MAX_CELLS} cells")));
                }
                cells.push(cell);
            }
            Ok(cells)
        }
    }

    deserializer.deserialize_seq(CellsVisitor)
}

const MAX_CELLS: usize = 500;

//! One run against one server.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::environment::{Metadata, Target};
use super::latency::Latencies;
use super::resources::Resources;
use super::series::Second;
use super::verdict::{ThresholdResult, Verdict};

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When, where and how it was made.
    pub metadata: Metadata,
    /// What was called.
    pub target: Target,
    /// The load.
    pub load: Load,
    /// Length of the measurement in seconds, without warm-up.
    pub duration_s: f64,
    /// Successful calls per second, of those that ended within the measurement.
    pub calls_per_second: f64,
    /// Numbers of calls.
    pub counts: Counts,
    /// Failed calls by error, the most frequent one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorCount>,
    /// Latencies of successful calls.
    pub latency: Latencies,
    /// The run in intervals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Second>,
    /// Latency at other rates, if those were measured too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// CPU time and memory.
    pub resources: Resources,
    /// Limits, and whether they were met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thresholds: Vec<ThresholdResult>,
    /// Conditions that readers should know, such as a noisy machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether the figures describe the server.
    pub verdict: Verdict,
}

/// Kind of load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopKind {
    /// Each caller makes its next call after the last has ended: a probe of throughput, whose latencies leave out waiting.
    #[default]
    Closed,
    /// Calls start when they are planned, whatever the server does.
    Open,
}

/// When the calls of an open loop start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Evenly spaced.
    Constant,
    /// Independent of each other.
    Poisson,
}

/// The planned load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Whether calls wait for each other.
    #[serde(rename = "loop")]
    pub kind: LoopKind,
    /// Planned calls per second; the highest one of a ramp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// When calls start, in an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// Concurrent callers, in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<u64>,
    /// Connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// The load in words: connections, callers, stages.
    pub description: String,
    /// Length of the warm-up in seconds.
    #[serde(default)]
    pub warmup_s: f64,
}

/// Numbers of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Calls that were to start, in an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<u64>,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls without an answer at the end of the run.
    #[serde(default)]
    pub unanswered: u64,
    /// Calls that waited because too many were in flight.
    #[serde(default)]
    pub blocked: u64,
}

/// Failed calls with the same error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// The error.
    pub error: String,
    /// Number of calls.
    pub count: u64,
}

/// Latency at one rate of several.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Planned calls per second.
    pub planned_rate: f64,
    /// Successful calls per second.
    pub rate: f64,
    /// Median response in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile in nanoseconds.
    pub p99_ns: u64,
    /// Whether it met the thresholds.
    pub is_met: bool,
}

impl Run {
    /// Number of calls that failed or were not answered.
    pub fn error_count(&self) -> u64 {
        self.counts.failed.saturating_add(self.counts.unanswered)
    }

    /// Share of the calls that failed or were not answered.
    pub fn error_share(&self) -> f64 {
        let calls = self.counts.succeeded.saturating_add(self.error_count());
        if calls > 0 { self.error_count() as f64 / calls as f64 } else { 0.0 }
    }

    /// 0 if the run is valid and all thresholds are met, 1 if one is not or no call succeeded, 3 if it is invalid.
    pub fn exit_code(&self) -> u8 {
        let is_met = self.thresholds.iter().all(|threshold| threshold.is_met);
        match () {
            () if !self.verdict.outcome.is_valid() => 3,
            () if !is_met || self.counts.succeeded == 0 => 1,
            () => 0,
        }
    }

    /// [`Self::exit_code`] for `main`.
    pub fn exit(&self) -> ExitCode {
        ExitCode::from(self.exit_code())
    }
}

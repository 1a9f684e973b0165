//! Whether a result may be believed, and what it means.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Judgement of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What happened.
    pub outcome: Outcome,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// What happened in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The run did what was planned.
    #[default]
    Completed,
    /// The server did not keep up: a result, at the rate that it reached.
    ServerSaturated,
    /// The load generator did not keep up, so that the figures describe it and not the server.
    GeneratorSaturated,
    /// Ended early by a signal. What was measured until then holds.
    Interrupted,
    /// The server went away. What was measured until then holds.
    ServerLost,
    /// A process that made a part of the load was lost, and its calls are missing.
    WorkerLost,
    /// The figures contradict each other or the settings.
    Inconsistent,
}

/// Whether a run met a threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdResult {
    /// The threshold as it was written.
    pub threshold: String,
    /// The figure in words; absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Whether it is within the limit. A figure that is unknown is not.
    pub is_met: bool,
    /// Why the figure is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Outcome {
    /// Whether the figures describe the server.
    pub fn is_valid(self) -> bool {
        !matches!(self, Self::GeneratorSaturated | Self::WorkerLost | Self::Inconsistent)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "valid",
            Self::ServerSaturated => "valid: the server is saturated",
            Self::GeneratorSaturated => "INVALID: the load generator is saturated",
            Self::Interrupted => "valid until it was interrupted",
            Self::ServerLost => "valid until the server went away",
            Self::WorkerLost => "INVALID: a part of the load generator was lost",
            Self::Inconsistent => "INVALID: the figures are inconsistent",
        })
    }
}

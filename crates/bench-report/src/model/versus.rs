//! Two servers, measured in interleaved rounds.

use serde::{Deserialize, Serialize};

use super::environment::{Metadata, Target};
use super::run::Load;
use super::verdict::Verdict;
use crate::statistics::noise::Probe;
use crate::statistics::{Comparison, Finding, Round};

/// Result of `bench ab`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Versus {
    /// When, where and how it was made.
    pub metadata: Metadata,
    /// The load of each window.
    pub load: Load,
    /// Length of a window in seconds; a round has two of each subject.
    pub window_s: f64,
    /// The reference.
    pub a: Subject,
    /// What is compared with it.
    pub b: Subject,
    /// What was compared.
    pub figures: Vec<Figure>,
    /// Probes of the machine, one a round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// Rounds that were repeated because of noise.
    #[serde(default)]
    pub repeated: u64,
    /// Conditions that readers should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether the figures describe the servers.
    pub verdict: Verdict,
}

/// One side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Its name in reports.
    pub name: String,
    /// What was called.
    pub target: Target,
    /// Failed calls in all windows.
    pub failed: u64,
    /// Successful calls in all windows.
    pub succeeded: u64,
}

/// A figure of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name, for example `p99`.
    pub name: String,
    /// Unit of the values: `ns`, `calls/s`, `bytes`.
    pub unit: String,
    /// Which direction is an improvement.
    pub better: Better,
    /// Its values in each round.
    pub rounds: Vec<Round>,
    /// The comparison; absent if a value is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// Which direction is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl Subject {
    /// Name, server and method.
    pub fn title(&self) -> String {
        let Target { url, method, .. } = &self.target;
        if self.name == *url { format!("{url} {method}") } else { format!("{}: {url} {method}", self.name) }
    }
}

impl Figure {
    /// Whether B is better than A (`Some(true)`), worse, or neither is shown.
    pub fn is_b_better(&self) -> Option<bool> {
        let finding = self.comparison.as_ref()?.finding;
        match (finding, self.better) {
            (Finding::Higher, Better::Higher) | (Finding::Lower, Better::Lower) => Some(true),
            (Finding::Higher | Finding::Lower, _) => Some(false),
            _ => None,
        }
    }

    /// The finding in words: `better`, `worse`, or why neither.
    pub fn finding(&self) -> String {
        match (&self.comparison, self.is_b_better()) {
            (None, _) => "not measured in every round".to_owned(),
            (Some(_), Some(true)) => "B is better".to_owned(),
            (Some(_), Some(false)) => "B is worse".to_owned(),
            (Some(comparison), None) => comparison.finding.to_string(),
        }
    }
}

impl Versus {
    /// 0 if B is not worse in any figure, 1 if it is in one, 3 if the result is invalid.
    pub fn exit_code(&self) -> u8 {
        match () {
            () if !self.verdict.outcome.is_valid() => 3,
            () if self.figures.iter().any(|figure| figure.is_b_better() == Some(false)) => 1,
            () => 0,
        }
    }
}

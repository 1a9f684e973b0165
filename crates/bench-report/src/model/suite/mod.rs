//! A published benchmark, made again.

mod cell;
mod published;
mod table;

use serde::{Deserialize, Serialize};

pub use self::cell::{Cell, Measure, Window};
pub use self::published::Published;
pub use self::table::{Chart, Entry, Key, RatioRow, Table};
use super::environment::Metadata;
use super::verdict::Verdict;
use crate::statistics::noise::Probe;

/// Result of `bench suite`: every table of a document, as published and as measured here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// When, where and how it was made.
    pub metadata: Metadata,
    /// Name of the suite.
    pub name: String,
    /// Title of the page.
    pub title: String,
    /// The document whose tables these are.
    pub document: String,
    /// `published` for the settings of the document, `fair` for those that correct its defects.
    pub variant: String,
    /// Planned rounds.
    pub rounds: u64,
    /// Length of a window in seconds, without warm-up.
    pub window_s: f64,
    /// Length of the warm-up of a window in seconds.
    pub warmup_s: f64,
    /// What is wrong with the published figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defects: Vec<String>,
    /// How this measurement differs from the document's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deviations: Vec<String>,
    /// The programs that take part.
    pub peers: Vec<Peer>,
    /// The pairs of client and server.
    pub pairs: Vec<Pair>,
    /// The loads.
    pub cases: Vec<Case>,
    /// What was measured. A pair that is absent in a case was not planned. At most 500.
    #[serde(deserialize_with = "cell::deserialize_bounded")]
    pub cells: Vec<Cell>,
    /// Noise of the machine around each case of each round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise: Vec<CaseNoise>,
    /// Rounds of a case that were repeated because of noise.
    #[serde(default)]
    pub repeated: u64,
    /// The tables of the document.
    pub tables: Vec<Table>,
    /// The figures of the document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<Chart>,
    /// Conditions that readers should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether the figures describe the servers.
    pub verdict: Verdict,
}

/// A program that takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name in pairs.
    pub name: String,
    /// What it is, with its version.
    pub description: String,
    /// Why it could not take part; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// How it was started, for readers who want to do so by hand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// A client and a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Its name in cells and tables.
    pub id: String,
    /// Its name for readers.
    pub name: String,
    /// The peer whose client calls.
    pub client: String,
    /// The peer whose server answers.
    pub server: String,
    /// The pair of the document's own client and server, with which this one is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// A load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Its name in cells and tables.
    pub id: String,
    /// Its name for readers.
    pub name: String,
    /// The load in words.
    pub load: String,
    /// Why no pair is measured under it; absent if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Noise of the machine while a case was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseNoise {
    /// The case.
    pub case: String,
    /// The round, from 0.
    pub round: u64,
    /// The probe.
    pub probe: Probe,
}

impl Suite {
    /// 0 if everything that was measured is valid and nothing went wrong, 1 if a server or a client failed, 3 if nothing was
    /// measured or a cell is invalid.
    pub fn exit_code(&self) -> u8 {
        let is_invalid = self.cells.iter().any(Cell::is_invalid);
        match () {
            () if !self.verdict.outcome.is_valid() || is_invalid => 3,
            () if self.cells.iter().any(|cell| cell.failure.is_some()) => 1,
            () => 0,
        }
    }

    /// The pair of this name.
    pub fn pair(&self, id: &str) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.id == id)
    }

    /// The case of this name.
    pub fn case(&self, id: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.id == id)
    }

    /// The cell of a pair under a case.
    pub fn cell(&self, pair: &str, case: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| !cell.is_control && cell.pair == pair && cell.case == case)
    }

    /// The cell in which the first pair of a case was measured again in each round.
    pub fn control(&self, case: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.is_control && cell.case == case)
    }

    /// Why a pair has no figures under a case.
    pub fn why_missing(&self, pair: &str, case: &str) -> Option<String> {
        let cell = self.cell(pair, case);
        if cell.is_some_and(|cell| !cell.windows.is_empty()) {
            return None;
        }
        let of_case = self.case(case).and_then(|case| case.missing.clone());
        let of_cell = cell.and_then(|cell| cell.missing.clone().or_else(|| cell.failure.clone()));
        Some(of_case.or(of_cell).unwrap_or_else(|| "not measured".to_owned()))
    }
}

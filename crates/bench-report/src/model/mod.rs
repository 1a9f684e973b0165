//! Results as data: what `--json` writes, and what every report is made of.
//!
//! A document is a [`Run`], a [`Versus`] or a [`Suite`]. [`JSON_SCHEMA`] describes its JSON form.
//! Within version 1 fields may be added; readers ignore those that they do not know.

mod document;
mod environment;
mod latency;
mod resources;
mod run;
mod series;
mod suite;
mod threshold;
mod verdict;
mod versus;

pub use document::{Document, ReadError, SCHEMA};
pub use environment::{Build, Machine, Metadata, Target};
pub use latency::{Latencies, Latency, NamedLatency};
pub use resources::{Process, Resources};
pub use run::{Arrivals, Counts, ErrorCount, Load, LoopKind, Run, Step};
pub use series::Second;
pub use suite::{
    Case, CaseNoise, Cell, Chart, Entry, Key, Measure, Pair, Peer, Published, RatioRow, Suite, Table, Window,
};
pub use threshold::{Limit, Metric, Side, Threshold, ThresholdError, Times};
pub use verdict::{Outcome, ThresholdResult, Verdict};
pub use versus::{Better, Figure, Subject, Versus};

/// The JSON Schema of documents.
pub const JSON_SCHEMA: &str = include_str!("schema.json");

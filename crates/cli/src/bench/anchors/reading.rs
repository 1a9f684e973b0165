//! What a tool is asked to do, and what it says that it measured.

use std::path::Path;
use std::time::Duration;

/// A load for a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Calls per second; `None`: as many as callers make one after the other.
    pub(super) rate: Option<u32>,
    /// Maximum number of calls in flight.
    pub(super) in_flight: usize,
    pub(super) length: Duration,
}

/// Where a tool finds what it needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Environment<'a> {
    /// Host and port of the server.
    pub(super) address: &'a str,
    /// A directory for files.
    pub(super) dir: &'a Path,
}

/// What a tool measured, in its own words.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    /// Calls that succeeded.
    pub(super) calls: u64,
    /// Time of the measurement.
    pub(super) seconds: f64,
    pub(super) mean: Option<Duration>,
    pub(super) p50: Option<Duration>,
    pub(super) p90: Option<Duration>,
    pub(super) p95: Option<Duration>,
    pub(super) p99: Option<Duration>,
    /// Whether the tool itself calls its measurement invalid.
    pub(super) is_invalid: bool,
}

impl Reading {
    /// Calls per second.
    pub(super) fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.calls as f64 / self.seconds } else { 0.0 }
    }
}

//! The course of a run.

use serde::{Deserialize, Serialize};

/// One interval of a run, usually a second. Calls belong to the interval in which they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Start of the interval in seconds from the start of the run.
    pub start_s: f64,
    /// Length of the interval in seconds.
    pub length_s: f64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Calls in flight at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Median response in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 90th percentile of the response in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_ns: Option<u64>,
    /// 99th percentile of the response in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// 99.9th percentile of the response in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<u64>,
    /// Longest response in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    /// Longest delay of a call by the load generator, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_max_ns: Option<u64>,
}

impl Second {
    /// Successful calls per second.
    pub fn rate(&self) -> f64 {
        if self.length_s > 0.0 { self.succeeded as f64 / self.length_s } else { 0.0 }
    }
}

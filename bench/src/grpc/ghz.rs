//! The load tool of the seed: ten connections with one call in flight each.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::peer::{file, program};

/// Result of ghz.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) calls_per_second: f64,
    pub(super) p99: Duration,
}

/// The greeting of the seed's commands, `calls` times.
///
/// # Errors
///
/// If it is not built, or a single call failed.
pub(super) fn run(server: SocketAddr, calls: u64) -> io::Result<Report> {
    let output = Command::new(program("ghz"))
        .args(["--insecure", "--connections=10", "--concurrency=10", "-O", "json"])
        .arg("--proto")
        .arg(file("crates/cli/proto/helloworld.proto"))
        .args(["--call", "helloworld.Greeter.SayHello", "-d", r#"{"name": "Joe"}"#])
        .args(["-n", &calls.to_string()])
        .arg(server.to_string())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("ghz: {error} (bench/peers/build)")))?;
    if !output.status.success() {
        return Err(io::Error::other(format!("ghz: {}", String::from_utf8_lossy(&output.stderr))));
    }
    serde_json::from_slice::<GhzReport>(&output.stdout)?.report(calls)
}

/// The used fields of ghz's JSON.
#[derive(Deserialize)]
struct GhzReport {
    rps: f64,
    #[serde(rename = "statusCodeDistribution")]
    codes: Codes,
    #[serde(rename = "latencyDistribution")]
    latencies: Vec<Latency>,
}

#[derive(Deserialize)]
struct Codes {
    #[serde(rename = "OK", default)]
    ok: u64,
}

#[derive(Deserialize)]
struct Latency {
    percentage: u32,
    /// Nanoseconds.
    latency: u64,
}

impl GhzReport {
    fn report(self, calls: u64) -> io::Result<Report> {
        if self.codes.ok != calls {
            return Err(io::Error::other(format!("ghz: {} of {calls} calls succeeded", self.codes.ok)));
        }
        let p99 = self.latencies.iter().find(|known| known.percentage == 99);
        let p99 = p99.ok_or_else(|| io::Error::other("ghz tells no 99th percentile"))?;
        Ok(Report { calls_per_second: self.rps, p99: Duration::from_nanos(p99.latency) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghz_report_is_accepted_only_if_every_call_succeeded() {
        let printed = r#"{"count":3,"rps":17101.86,"statusCodeDistribution":{"OK":3},
            "latencyDistribution":[{"percentage":50,"latency":160000},{"percentage":99,"latency":830000}]}"#;
        let read = |calls| serde_json::from_str::<GhzReport>(printed).unwrap().report(calls);
        let report = read(3).unwrap();
        assert_eq!((report.calls_per_second, report.p99), (17101.86, Duration::from_micros(830)));
        read(4).unwrap_err();
    }
}

//! oha, with its JSON. Its correction of latencies is an option.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::reading::{Environment, Load, Reading};

pub(super) fn arguments(corrected: bool, load: Load, environment: Environment<'_>) -> Vec<String> {
    let (in_flight, length) = (load.in_flight.to_string(), format!("{}ms", load.length.as_millis()));
    let rate = load.rate.map(|rate| rate.to_string());
    let url = format!("http://{}/helloworld.Greeter/SayHello", environment.address);
    let mut arguments = vec!["--no-tui", "--output-format", "json", "-w", "-c", &in_flight, "-z", &length];
    arguments.extend(["-m", "POST", "-T", "application/json", "-d", r#"{"name":"Joe"}"#]);
    if let Some(rate) = &rate {
        arguments.extend(["-q", rate]);
    }
    if corrected {
        arguments.push("--latency-correction");
    }
    arguments.push(&url);
    arguments.into_iter().map(str::to_owned).collect()
}

/// The used fields of its JSON. Times are seconds.
#[derive(Deserialize)]
struct OhaReport {
    summary: Summary,
    #[serde(rename = "latencyPercentiles")]
    percentiles: BTreeMap<String, Option<f64>>,
    #[serde(rename = "statusCodeDistribution")]
    codes: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Summary {
    total: f64,
    average: Option<f64>,
}

pub(super) fn read(text: &str) -> Option<Reading> {
    let printed: OhaReport = serde_json::from_str(text).ok()?;
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
    let at = |name: &str| printed.percentiles.get(name).copied().flatten().and_then(time);
    Some(Reading {
        calls: printed.codes.get("200").copied().unwrap_or(0),
        seconds: printed.summary.total,
        mean: printed.summary.average.and_then(time),
        p50: at("p50"),
        p90: at("p90"),
        p95: at("p95"),
        p99: at("p99"),
        is_invalid: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oha_report_is_read() {
        let text = r#"{"summary":{"successRate":1.0,"total":2.0,"slowest":0.5,"fastest":0.1,"average":0.25},
            "latencyPercentiles":{"p10":0.1,"p50":0.2,"p90":0.3,"p95":0.4,"p99":0.5,"p99.9":null},
            "statusCodeDistribution":{"200":4,"503":1},"errorDistribution":{}}"#;
        let reading = read(text).unwrap();
        assert_eq!((reading.calls, reading.rate()), (4, 2.0));
        assert_eq!(
            (reading.mean, reading.p99),
            (Some(Duration::from_millis(250)), Some(Duration::from_millis(500)))
        );
        assert_eq!(read("Error: connection refused"), None);
    }
}

//! ghz, with its JSON.

use std::time::Duration;

use serde::Deserialize;

use super::reading::{Environment, Load, Reading};

pub(super) fn arguments(load: Load, environment: Environment<'_>) -> Vec<String> {
    let mut arguments = vec!["--insecure", "--connections", "1", "-O", "json"];
    let (in_flight, length) = (load.in_flight.to_string(), format!("{}ms", load.length.as_millis()));
    let rate = load.rate.map(|rate| rate.to_string());
    arguments.extend(["--call", "helloworld.Greeter.SayHello", "-d", r#"{"name":"Joe"}"#]);
    arguments.extend(["--concurrency", &in_flight, "--duration", &length, "--duration-stop", "wait"]);
    if let Some(rate) = &rate {
        arguments.extend(["--rps", rate]);
    }
    arguments.push(environment.address);
    arguments.into_iter().map(str::to_owned).collect()
}

/// The used fields of its JSON. Times are nanoseconds.
#[derive(Deserialize)]
struct GhzReport {
    total: u64,
    average: u64,
    #[serde(rename = "statusCodeDistribution")]
    codes: Codes,
    #[serde(rename = "latencyDistribution")]
    latencies: Option<Vec<Percentile>>,
}

#[derive(Deserialize)]
struct Codes {
    #[serde(rename = "OK", default)]
    ok: u64,
}

#[derive(Deserialize)]
struct Percentile {
    percentage: u32,
    latency: u64,
}

pub(super) fn read(text: &str) -> Option<Reading> {
    let printed: GhzReport = serde_json::from_str(text).ok()?;
    let latencies = printed.latencies.unwrap_or_default();
    let at = |percentage| {
        let found = latencies.iter().find(|known| known.percentage == percentage);
        found.map(|found| Duration::from_nanos(found.latency))
    };
    Some(Reading {
        calls: printed.codes.ok,
        seconds: Duration::from_nanos(printed.total).as_secs_f64(),
        mean: Some(Duration::from_nanos(printed.average)),
        p50: at(50),
        p90: at(90),
        p95: at(95),
        p99: at(99),
        is_invalid: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghz_report_is_read() {
        let text = r#"{"count":3,"total":3000000000,"average":200000,"fastest":1,"slowest":2,"rps":1.0,
            "statusCodeDistribution":{"OK":3,"Unavailable":1},
            "latencyDistribution":[{"percentage":50,"latency":160000},{"percentage":99,"latency":830000}]}"#;
        let reading = read(text).unwrap();
        assert_eq!((reading.calls, reading.rate()), (3, 1.0));
        assert_eq!((reading.p99, reading.p90), (Some(Duration::from_micros(830)), None));
        assert_eq!(read("Failed to connect"), None);
    }
}

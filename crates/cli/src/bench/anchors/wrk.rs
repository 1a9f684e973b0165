//! wrk: HTTP/1.1 in a closed loop. It has no rate.

use std::fs;
use std::time::Duration;

use super::reading::{Environment, Load, Reading};

pub(super) fn arguments(load: Load, environment: Environment<'_>) -> Option<Vec<String>> {
    if load.rate.is_some() {
        return None;
    }
    let script = environment.dir.join("wrk.lua");
    fs::write(&script, SCRIPT).ok()?;
    let seconds = load.length.as_secs().max(1).to_string();
    let (in_flight, script) = (load.in_flight.to_string(), script.display().to_string());
    let url = format!("http://{}/helloworld.Greeter/SayHello", environment.address);
    let arguments = ["-t", "1", "-c", &in_flight, "-d", &seconds, "--latency", "-s", &script, &url];
    Some(arguments.map(str::to_owned).to_vec())
}

/// Latencies in its summary, `Latency   1.23ms  0.5ms  10ms  90%`, and in its distribution, `99%   1.23ms`.
pub(super) fn read(text: &str) -> Option<Reading> {
    let lines = || text.lines().map(str::trim);
    let totals = lines().find(|line| line.contains(" requests in "))?;
    let (calls, rest) = totals.split_once(" requests in ")?;
    let failed = lines().find_map(|line| line.strip_prefix("Non-2xx or 3xx responses: ")).unwrap_or("0");
    let at = |name: &str| lines().find_map(|line| parse_time(line.strip_prefix(name)?.trim()));
    let mean = lines().find_map(|line| parse_time(line.strip_prefix("Latency")?.split_whitespace().next()?));
    Some(Reading {
        calls: calls.parse::<u64>().ok()?.checked_sub(failed.trim().parse().ok()?)?,
        seconds: parse_time(rest.split(',').next()?)?.as_secs_f64(),
        mean,
        p50: at("50%"),
        p90: at("90%"),
        p95: None,
        p99: at("99%"),
        is_invalid: false,
    })
}

fn parse_time(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

const SCRIPT: &str = "\
wrk.method = 'POST'
wrk.body = '{\"name\":\"Joe\"}'
wrk.headers['Content-Type'] = 'application/json'
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_report_is_read() {
        let text = "Running 3s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n  Thread Stats   Avg      Stdev     \
            Max   +/- Stdev\n    Latency     1.50ms    2.81ms  50.05ms   92.96%\n    Req/Sec   100.00k\n  Latency \
            Distribution\n     50%  371.00us\n     75%    1.02ms\n     90%    2.25ms\n     99%    1.10s\n  329100 \
            requests in 3.00s, 40.86MB read\n  Non-2xx or 3xx responses: 100\nRequests/sec:  109666.66\n";
        let reading = read(text).unwrap();
        assert_eq!((reading.calls, reading.seconds), (329_000, 3.0));
        assert_eq!(
            (reading.p50, reading.p99),
            (Some(Duration::from_micros(371)), Some(Duration::from_millis(1100)))
        );
        assert_eq!(reading.mean, Some(Duration::from_micros(1500)));
        assert_eq!(read("unable to connect"), None);
    }
}

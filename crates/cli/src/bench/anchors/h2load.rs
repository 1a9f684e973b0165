//! nghttp2's h2load: HTTP/2 requests with the body of a gRPC call. It prints no percentiles; those here are of its log.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::reading::{Environment, Load, Reading};

pub(super) fn arguments(load: Load, environment: Environment<'_>) -> Vec<String> {
    let body = environment.dir.join("h2load.body");
    // A file that is not written shows in the calls, which fail.
    let _ = fs::write(&body, BODY);
    let log = log(environment);
    let _ = fs::remove_file(&log);
    let mut arguments = vec!["-c".to_owned(), "1".to_owned(), "-t".to_owned(), "1".to_owned()];
    arguments.extend(["-m".to_owned(), load.in_flight.to_string()]);
    arguments.extend(["-D".to_owned(), load.length.as_secs_f64().to_string()]);
    if let Some(rate) = load.rate {
        arguments.extend(["--rps".to_owned(), rate.to_string()]);
        // At its highest rate the log would be most of its work.
        arguments.extend(["--log-file".to_owned(), log.display().to_string()]);
    }
    arguments.extend(["-H", "content-type: application/grpc", "-H", "te: trailers"].map(str::to_owned));
    arguments.extend(["-d".to_owned(), body.display().to_string()]);
    arguments.push(format!("http://{}/helloworld.Greeter/SayHello", environment.address));
    arguments
}

fn log(environment: Environment<'_>) -> PathBuf {
    environment.dir.join("h2load.log")
}

pub(super) fn read(text: &str, load: Load, environment: Environment<'_>) -> Option<Reading> {
    let log = fs::read_to_string(log(environment)).unwrap_or_default();
    parse(text, &log, load.length)
}

/// Lines of the log: microseconds since the epoch, status, microseconds to the end of the response.
fn parse(text: &str, log: &str, length: Duration) -> Option<Reading> {
    let counts = text.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let succeeded = counts.split(", ").find_map(|part| part.strip_suffix(" succeeded"))?.parse().ok()?;
    let time = |line: &str| {
        let mut fields = line.split('\t').skip(1);
        let (status, time) = (fields.next()?, fields.next()?);
        (status == "200").then(|| time.trim().parse().ok().map(Duration::from_micros)).flatten()
    };
    let mut times: Vec<Duration> = log.lines().filter_map(time).collect();
    times.sort_unstable();
    let at = |share: f64| {
        let rank = (times.len() as f64 * share).ceil() as usize;
        times.get(rank.saturating_sub(1)).copied()
    };
    let sum: Duration = times.iter().sum();
    Some(Reading {
        calls: succeeded,
        seconds: length.as_secs_f64(),
        mean: u32::try_from(times.len()).ok().filter(|count| *count > 0).map(|count| sum / count),
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        is_invalid: false,
    })
}

/// A greeting for Joe as gRPC frames it.
const BODY: &[u8] = b"\x00\x00\x00\x00\x05\x0a\x03Joe";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h2load_report_and_log_are_read() {
        let text = "finished in 1.00s, 3.00 req/s, 1B/s\n\
            requests: 4 total, 4 started, 4 done, 3 succeeded, 1 failed, 1 errored, 0 timeout\n";
        let log = "1\t200\t100\n2\t200\t300\n3\t-1\t-1\n4\t200\t200\n";
        let reading = parse(text, log, Duration::from_secs(1)).unwrap();
        assert_eq!((reading.calls, reading.p50), (3, Some(Duration::from_micros(200))));
        assert_eq!(
            (reading.mean, reading.p99),
            (Some(Duration::from_micros(200)), Some(Duration::from_micros(300)))
        );
        assert_eq!(parse(text, "", Duration::from_secs(1)).unwrap().p50, None);
        assert_eq!(parse("could not connect", "", Duration::from_secs(1)), None);
    }
}

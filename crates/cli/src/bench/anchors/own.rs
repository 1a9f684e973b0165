//! This program.

use std::time::Duration;

use polyrpc_bench_report::model::Document;

use super::reading::{Environment, Load, Reading};

pub(super) fn arguments(protocol: &str, load: Load, environment: Environment<'_>) -> Vec<String> {
    let url = format!("{protocol}://{}", environment.address);
    let mut arguments = vec!["bench".to_owned(), url];
    arguments.extend(
        match protocol {
            "baidu-std" => ["example.EchoService/Echo", r#"{"message":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#],
            _ => ["helloworld.Greeter/SayHello", r#"{"name":"Joe"}"#],
        }
        .map(str::to_owned),
    );
    let length = format!("{}ms", load.length.as_millis());
    arguments.extend(["--duration", &length, "--warmup", "0s", "--json", "-"].map(str::to_owned));
    let in_flight = load.in_flight.to_string();
    arguments.extend(match load.rate {
        Some(rate) => vec!["--rate".to_owned(), rate.to_string(), "--max-in-flight".to_owned(), in_flight],
        None => vec!["--callers".to_owned(), in_flight],
    });
    arguments
}

pub(super) fn read(text: &str) -> Option<Reading> {
    let Ok(Document::Run(run)) = Document::read(text) else { return None };
    let response = &run.latency.response;
    let at = |quantile| response.quantile(quantile).map(|found| Duration::from_nanos(found.value));
    Some(Reading {
        calls: run.counts.succeeded,
        seconds: run.duration_s,
        mean: Some(Duration::from_nanos(response.histogram().mean() as u64)),
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        is_invalid: !run.verdict.outcome.is_valid(),
    })
}

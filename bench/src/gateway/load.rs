//! CPU time of a call in a proxy, and the latency that it adds.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::process::Command;

use serde::Serialize;

use super::Options;
use super::proxy::{Input, Proxy};
use crate::bar::{Bar, Limit};
use crate::grpc::{ClientOptions, GrpcServer};
use crate::process::Done;
use crate::report::{dash, with_spread};
use crate::rounds::{self, Series};

/// A workload and its bars.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    input: Input,
    callers: usize,
    /// Maximum ratio of our CPU time to another proxy's.
    ratios: &'static [(Proxy, f64)],
    /// The proxy that adds at least as much to the median latency.
    latency: Option<Proxy>,
}

const CASES: [Case; 4] = [
    Case {
        name: "grpc_64",
        input: Input::Grpc,
        callers: 64,
        ratios: &[(Proxy::Nghttpx, 0.7), (Proxy::Haproxy, 0.5), (Proxy::Nginx, 0.25), (Proxy::Envoy, 0.2)],
        latency: None,
    },
    Case {
        name: "grpc_1",
        input: Input::Grpc,
        callers: 1,
        ratios: &[(Proxy::Nghttpx, 0.9)],
        latency: Some(Proxy::Nghttpx),
    },
    Case { name: "json_64", input: Input::Json, callers: 64, ratios: &[(Proxy::Envoy, 0.25)], latency: None },
    Case { name: "json_1", input: Input::Json, callers: 1, ratios: &[(Proxy::Envoy, 0.25)], latency: None },
];

const PAYLOAD: usize = 32;

/// Result of one proxy in one round.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    calls_per_second: f64,
    /// Microseconds of the proxy per call.
    cpu_us: f64,
    /// Of the client, if it is ours.
    p50_us: Option<f64>,
    p99_us: Option<f64>,
}

/// A workload, and the results of every proxy.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    #[serde(skip)]
    case: Case,
    name: &'static str,
    series: Vec<Series<Proxy, Outcome>>,
}

pub(super) fn measure(options: &Options) -> Vec<Measured> {
    let chosen = CASES.into_iter().filter(|case| options.is_chosen(case.name));
    chosen
        .map(|case| {
            eprintln!("measuring {}", case.name);
            let proxies: Vec<_> = options.proxies().into_iter().filter(|proxy| case.has(*proxy)).collect();
            let series = rounds::interleave(options.rounds, &proxies, |proxy| case.load(proxy));
            Measured { case, name: case.name, series }
        })
        .collect()
}

impl Case {
    /// Whether a proxy supports the workload, and is needed for a bar.
    fn has(&self, proxy: Proxy) -> bool {
        match self.input {
            Input::Grpc => self.latency.is_some() || proxy != Proxy::Direct,
            Input::Json => matches!(proxy, Proxy::Polyrpc | Proxy::Envoy),
        }
    }

    /// Calls through a fresh proxy, after a warm-up.
    fn load(&self, proxy: Proxy) -> io::Result<Outcome> {
        let upstream = GrpcServer::start()?;
        let running = proxy.start(self.input, upstream.address)?;
        match self.input {
            Input::Grpc => {
                let options = ClientOptions {
                    callers: self.callers,
                    payload: PAYLOAD,
                    ..ClientOptions::echo(running.address)
                };
                let (mut client, _) = options.start()?;
                let before = running.cpu_ns()?;
                client.send_go()?;
                let Done { tally, .. } = options.wait_for_end(&client)?;
                let spent = running.cpu_ns()?.saturating_sub(before);
                if tally.errors > 0 {
                    let text = format!("{} wrong replies of {}", tally.errors, tally.calls);
                    return Err(io::Error::other(text));
                }
                Ok(Outcome {
                    calls_per_second: tally.calls as f64 / (tally.elapsed_ns as f64 / 1e9),
                    cpu_us: spent as f64 / 1e3 / tally.calls as f64,
                    p50_us: Some(tally.p50_ns as f64 / 1e3),
                    p99_us: Some(tally.p99_ns as f64 / 1e3),
                })
            }
            Input::Json => {
                let requests = if self.callers > 1 { 40_000 } else { 10_000 };
                json(running.address, self.callers, requests / 10)?;
                let before = running.cpu_ns()?;
                let calls_per_second = json(running.address, self.callers, requests)?;
                let spent = running.cpu_ns()?.saturating_sub(before);
                let cpu_us = spent as f64 / 1e3 / f64::from(requests);
                Ok(Outcome { calls_per_second, cpu_us, p50_us: None, p99_us: None })
            }
        }
    }
}

/// Calls with JSON over HTTP/1.1, each caller on a connection; returns the rate.
fn json(server: SocketAddr, callers: usize, requests: u32) -> io::Result<f64> {
    let body = std::env::temp_dir().join(format!("polyrpc-bench-{}.json", std::process::id()));
    fs::write(&body, format!("{{\"message\":\"{}\"}}", "A".repeat(PAYLOAD)))?;
    let output = Command::new("h2load")
        .args(["--h1", "-t", "1", "-c", &callers.to_string(), "-n", &requests.to_string()])
        .args(["-H", "content-type: application/json", "-d"])
        .arg(&body)
        .arg(format!("http://{server}/example.EchoService/Echo"))
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("h2load: {error} (nghttp2-client)")))?;
    fs::remove_file(&body)?;
    crate::grpc::h2load_rate(&String::from_utf8_lossy(&output.stdout), u64::from(requests))
}

impl Measured {
    fn series(&self, proxy: Proxy) -> Option<&Series<Proxy, Outcome>> {
        self.series.iter().find(|series| series.subject == proxy)
    }

    fn is_clean(&self, proxy: Proxy) -> bool {
        self.series(proxy).is_some_and(|series| series.rounds.iter().all(Result::is_ok))
    }

    pub(super) fn bars(&self) -> Vec<Bar> {
        let own = self.series(Proxy::Polyrpc);
        let ratios = self.case.ratios.iter().map(|&(proxy, limit)| {
            let ratio = own.zip(self.series(proxy)).and_then(|(own, other)| own.ratio(other, |it| it.cpu_us));
            Bar {
                name: format!("gateway_{}_of_{}", self.name, proxy.as_str()),
                value: ratio.map(|ratio| ratio.median),
                limit: Limit::RatioAtMost(limit),
                clean: self.is_clean(Proxy::Polyrpc) && self.is_clean(proxy),
            }
        });
        let latency = self.case.latency.map(|proxy| Bar {
            name: format!("gateway_{}_added_p50_of_{}", self.name, proxy.as_str()),
            value: self.added_p50(Proxy::Polyrpc).zip(self.added_p50(proxy)).map(|(own, other)| own / other),
            limit: Limit::RatioAtMost(1.0),
            clean: [Proxy::Direct, Proxy::Polyrpc, proxy].into_iter().all(|it| self.is_clean(it)),
        });
        ratios.chain(latency).collect()
    }

    /// Increase of the median latency by a proxy, in microseconds.
    fn added_p50(&self, proxy: Proxy) -> Option<f64> {
        let p50 = |proxy| {
            let series: &Series<Proxy, Outcome> = self.series(proxy)?;
            Some(series.spread(|outcome| outcome.p50_us.unwrap_or(f64::NAN))?.median)
        };
        Some(p50(proxy)? - p50(Proxy::Direct)?).filter(|added| *added > 0.0)
    }
}

pub(super) fn print(measured: &[Measured]) {
    if measured.is_empty() {
        return;
    }
    println!();
    println!(
        "{:<10} {:<9} {:>28} {:>22} {:>9} {:>9} {:>20}",
        "calls", "proxy", "calls/s", "proxy's CPU µs", "p50 µs", "p99 µs", "ours is"
    );
    for case in measured {
        let own = case.series(Proxy::Polyrpc);
        for series in &case.series {
            let optional = |figure: fn(&Outcome) -> Option<f64>| {
                let spread = series.spread(|outcome| figure(outcome).unwrap_or(f64::NAN));
                spread
                    .map(|it| it.median)
                    .filter(|it| !it.is_nan())
                    .map_or_else(dash, |it| format!("{it:.1}"))
            };
            let is_other = ![Proxy::Polyrpc, Proxy::Direct].contains(&series.subject);
            let ratio = own.filter(|_| is_other).and_then(|own| own.ratio(series, |outcome| outcome.cpu_us));
            println!(
                "{:<10} {:<9} {:>28} {:>22} {:>9} {:>9} {:>20}",
                case.name,
                series.subject.as_str(),
                with_spread(series.spread(|outcome| outcome.calls_per_second), 0),
                with_spread(series.spread(|outcome| outcome.cpu_us), 2),
                optional(|outcome| outcome.p50_us),
                optional(|outcome| outcome.p99_us),
                with_spread(ratio, 2),
            );
            for (round, n) in series.rounds.iter().zip(1..) {
                if let Err(error) = round {
                    println!("  SKIPPED in round {n}: {error}");
                }
            }
        }
    }
}

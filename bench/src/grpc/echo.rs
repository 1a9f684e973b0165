//! Cost of a call on the server, with foreign clients and with ours.

use std::io;

use serde::Serialize;

use super::h2load::Load;
use super::peer::Peer;
use super::task::{ClientOptions, Method};
use super::{Options, ghz};
use crate::bar::{Bar, Limit};
use crate::process::Done;
use crate::report::{dash, with_spread};
use crate::rounds::{self, Series};

/// A workload and its bars.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    client: Client,
    /// Maximum ratio of our server's CPU time to another server's.
    ratios: &'static [(Peer, f64)],
    /// Maximum ratio of the CPU time per call, client and server together, to the best peer's.
    sum: Option<f64>,
}

/// The client.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// h2load: one connection, 64 requests in flight.
    H2load { payload: usize },
    /// Ours: one connection, 64 callers.
    Ours { payload: usize },
    /// ghz, as in the seed: ten connections with one call in flight each.
    Ghz,
}

const IN_FLIGHT: usize = 64;

/// Bars for one connection with 64 calls in flight, of servers with as many threads as ours.
const ONE_CONNECTION: &[(Peer, f64)] =
    &[(Peer::TonicOneThread, 1.0 / 3.0), (Peer::GrpcGoOneThread, 1.0 / 5.0)];

const CASES: [Case; 5] = [
    Case { name: "h2load64_32", client: Client::H2load { payload: 32 }, ratios: ONE_CONNECTION, sum: None },
    Case { name: "h2load64_1k", client: Client::H2load { payload: 1024 }, ratios: ONE_CONNECTION, sum: None },
    Case {
        name: "shared64_32",
        client: Client::Ours { payload: 32 },
        ratios: ONE_CONNECTION,
        sum: Some(0.4),
    },
    Case { name: "shared64_1k", client: Client::Ours { payload: 1024 }, ratios: ONE_CONNECTION, sum: None },
    Case { name: "ghz_10x10", client: Client::Ghz, ratios: &[(Peer::GrpcGoOneThread, 0.5)], sum: None },
];

/// Result of one server in one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    calls_per_second: f64,
    /// Microseconds per call.
    server_cpu_us: f64,
    /// CPU time of the client, if it is ours.
    client_cpu_us: Option<f64>,
    p99_us: Option<f64>,
}

/// A workload, and the results of every server.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    #[serde(skip)]
    case: Case,
    name: &'static str,
    series: Vec<Series<Peer, Outcome>>,
}

pub(super) fn measure(options: &Options, peers: &[Peer]) -> Vec<Measured> {
    let chosen = CASES.into_iter().filter(|case| options.is_chosen(case.name));
    chosen
        .map(|case| {
            eprintln!("measuring {}", case.name);
            let series = rounds::interleave(options.rounds, peers, |peer| case.client.load(peer));
            Measured { case, name: case.name, series }
        })
        .collect()
}

impl Client {
    /// Calls a fresh server, after a warm-up.
    fn load(self, peer: Peer) -> io::Result<Outcome> {
        match self {
            Self::H2load { payload } => run_h2load(peer, payload),
            Self::Ours { payload } => run_own_client(peer, payload),
            Self::Ghz => run_ghz(peer),
        }
    }
}

fn run_h2load(peer: Peer, payload: usize) -> io::Result<Outcome> {
    const REQUESTS: u64 = 100_000;
    let (mut server, address) = peer.start(0)?;
    let load = Load { in_flight: IN_FLIGHT, payload, requests: REQUESTS };
    Load { requests: REQUESTS / 10, ..load }.run(address)?;
    let before = server.resource_usage()?;
    let calls_per_second = load.run(address)?;
    let spent = server.resource_usage()?.cpu_ns - before.cpu_ns;
    let server_cpu_us = micros_per_call(spent, REQUESTS);
    Ok(Outcome { calls_per_second, server_cpu_us, client_cpu_us: None, p99_us: None })
}

fn run_ghz(peer: Peer) -> io::Result<Outcome> {
    const CALLS: u64 = 30_000;
    let (mut server, address) = peer.start(0)?;
    ghz::run(address, CALLS / 10)?;
    let before = server.resource_usage()?;
    let report = ghz::run(address, CALLS)?;
    let spent = server.resource_usage()?.cpu_ns - before.cpu_ns;
    Ok(Outcome {
        calls_per_second: report.calls_per_second,
        server_cpu_us: micros_per_call(spent, CALLS),
        client_cpu_us: None,
        p99_us: Some(report.p99.as_secs_f64() * 1e6),
    })
}

fn run_own_client(peer: Peer, payload: usize) -> io::Result<Outcome> {
    let (mut server, address) = peer.start(0)?;
    let options =
        ClientOptions { method: Method::Echo, payload, callers: IN_FLIGHT, ..ClientOptions::echo(address) };
    let (mut client, _) = options.start()?;
    let before = server.resource_usage()?;
    client.send_go()?;
    let Done { cpu_ns, tally } = options.wait_for_end(&client)?;
    let spent = server.resource_usage()?.cpu_ns - before.cpu_ns;
    if tally.errors > 0 {
        return Err(io::Error::other(format!("{} wrong replies of {}", tally.errors, tally.calls)));
    }
    Ok(Outcome {
        calls_per_second: tally.calls as f64 / (tally.elapsed_ns as f64 / 1e9),
        server_cpu_us: micros_per_call(spent, tally.calls),
        client_cpu_us: Some(micros_per_call(cpu_ns, tally.calls)),
        p99_us: Some(tally.p99_ns as f64 / 1e3),
    })
}

fn micros_per_call(ns: u64, calls: u64) -> f64 {
    ns as f64 / 1e3 / calls as f64
}

impl Measured {
    fn series(&self, peer: Peer) -> Option<&Series<Peer, Outcome>> {
        self.series.iter().find(|series| series.subject == peer)
    }

    pub(super) fn bars(&self) -> Vec<Bar> {
        let own = self.series(Peer::Polyrpc);
        let clean = |peers: &[Peer]| {
            peers
                .iter()
                .all(|&peer| self.series(peer).is_some_and(|series| series.rounds.iter().all(Result::is_ok)))
        };
        let ratios = self.case.ratios.iter().map(|&(peer, limit)| {
            let ratio =
                own.zip(self.series(peer)).and_then(|(own, other)| own.ratio(other, |o| o.server_cpu_us));
            Bar {
                name: format!("grpc_{}_of_{}", self.name, peer.as_str()),
                value: ratio.map(|ratio| ratio.median),
                limit: Limit::RatioAtMost(limit),
                clean: clean(&[Peer::Polyrpc, peer]),
            }
        });
        let sum = self.case.sum.map(|limit| Bar {
            name: format!("grpc_{}_of_the_best", self.name),
            value: own.and_then(|own| self.sum_of_the_best(own)),
            limit: Limit::RatioAtMost(limit),
            clean: clean(&[Peer::Polyrpc]),
        });
        ratios.chain(sum).collect()
    }
}

impl Measured {
    /// Ratio of our CPU time per call to that of the peer with the least, client and server together.
    fn sum_of_the_best(&self, own: &Series<Peer, Outcome>) -> Option<f64> {
        let peers = self.series.iter().filter(|series| series.subject != Peer::Polyrpc);
        let ratios = peers.filter_map(|peer| own.ratio(peer, Outcome::cpu_us));
        ratios.map(|ratio| ratio.median).max_by(f64::total_cmp)
    }
}

impl Outcome {
    /// CPU time per call, client and server together.
    fn cpu_us(&self) -> f64 {
        self.server_cpu_us + self.client_cpu_us.unwrap_or_default()
    }
}

pub(super) fn print(measured: &[Measured]) {
    if measured.is_empty() {
        return;
    }
    println!();
    println!(
        "{:<14} {:<17} {:>32} {:>10} {:>22} {:>10} {:>20}",
        "gRPC", "server", "calls/s", "p99 µs", "server CPU µs", "client", "ours is"
    );
    for case in measured {
        for series in &case.series {
            case.print(series);
        }
    }
}

impl Measured {
    fn print(&self, series: &Series<Peer, Outcome>) {
        let optional = |figure: fn(&Outcome) -> Option<f64>| {
            let spread = series.spread(|outcome| figure(outcome).unwrap_or(f64::NAN));
            spread
                .filter(|spread| !spread.median.is_nan())
                .map_or_else(dash, |spread| format!("{:.2}", spread.median))
        };
        let ratio = self
            .series(Peer::Polyrpc)
            .filter(|_| series.subject != Peer::Polyrpc)
            .and_then(|own| own.ratio(series, |outcome| outcome.server_cpu_us));
        println!(
            "{:<14} {:<17} {:>32} {:>10} {:>22} {:>10} {:>20}",
            self.name,
            series.subject.as_str(),
            with_spread(series.spread(|outcome| outcome.calls_per_second), 0),
            optional(|outcome| outcome.p99_us),
            with_spread(series.spread(|outcome| outcome.server_cpu_us), 2),
            optional(|outcome| outcome.client_cpu_us),
            with_spread(ratio, 3),
        );
        let failures =
            series.rounds.iter().zip(1..).filter_map(|(round, n)| Some((n, round.as_ref().err()?)));
        for (round, error) in failures {
            println!("  round {round}: {error}");
        }
    }
}

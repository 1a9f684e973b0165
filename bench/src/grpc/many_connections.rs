//! Many connections, as in the seed: 20,000 requests with its 581-byte message, over 20 to 10,000 connections.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Options;
use super::peer::Peer;
use super::task::{ClientOptions, Method};
use crate::bar::{Bar, Limit};
use crate::process::{Child, Done, ResourceUsage};
use crate::report::with_spread;
use crate::rounds::{self, Series};
use crate::run::REPORT_TIMEOUT;

const CONNECTIONS: [usize; 5] = [20, 100, 500, 1000, 10_000];
const REQUESTS: usize = 20_000;

/// Maximum resident memory per connection in KiB.
const KIB: f64 = 12.0;

/// Result of one server in one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    calls_per_second: f64,
    mean_us: f64,
    server_cpu_us: f64,
    /// Share of one core during the requests.
    server_cpu_percent: f64,
    /// Resident memory of the process at the end.
    resident_kib: u64,
    /// Growth of the process per connection that has made a call.
    connection_kib: f64,
    /// Time from the first connect to the last first reply, per connection.
    set_up_us: f64,
    /// CPU time of the server meanwhile, per connection.
    set_up_cpu_us: f64,
}

/// A number of connections, and the results of every server.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    connections: usize,
    series: Vec<Series<Peer, Outcome>>,
}

pub(super) fn measure(options: &Options, peers: &[Peer]) -> Vec<Measured> {
    let chosen = CONNECTIONS.into_iter().filter(|connections| options.is_chosen(&name(*connections)));
    chosen
        .map(|connections| {
            eprintln!("measuring {}", name(connections));
            let series = rounds::interleave(options.rounds, peers, |peer| load(peer, connections));
            Measured { connections, series }
        })
        .collect()
}

fn name(connections: usize) -> String {
    format!("many_{connections}")
}

fn load(peer: Peer, connections: usize) -> io::Result<Outcome> {
    let (mut server, address) = peer.start(0)?;
    // One call, so that one-time setup is not attributed to a connection.
    drop(ClientOptions { warm_up: 0, ..ClientOptions::echo(address) }.start()?);
    let fresh = server.resource_usage()?;
    let options = ClientOptions {
        method: Method::Say,
        connections,
        calls: Some(REQUESTS),
        warm_up: 0,
        ..ClientOptions::echo(address)
    };
    let (mut client, connected) = options.start()?;
    let opened = wait_until_stable(&mut server)?;
    client.send_go()?;
    let Done { tally, .. } = options.wait_for_end(&client)?;
    let after = server.resource_usage()?;
    if tally.errors > 0 || tally.calls != REQUESTS as u64 {
        return Err(io::Error::other(format!("{} right replies of {REQUESTS}", tally.calls - tally.errors)));
    }
    let (spent, count) = ((after.cpu_ns - opened.cpu_ns) as f64, connections as f64);
    Ok(Outcome {
        calls_per_second: REQUESTS as f64 / (tally.elapsed_ns as f64 / 1e9),
        mean_us: tally.mean_ns as f64 / 1e3,
        server_cpu_us: spent / 1e3 / REQUESTS as f64,
        server_cpu_percent: 100.0 * spent / tally.elapsed_ns as f64,
        resident_kib: after.resident_kib,
        connection_kib: opened.resident_kib.saturating_sub(fresh.resident_kib) as f64 / count,
        set_up_us: connected.took_ns as f64 / 1e3 / count,
        set_up_cpu_us: (opened.cpu_ns - fresh.cpu_ns) as f64 / 1e3 / count,
    })
}

/// Waits until the server's memory is stable.
fn wait_until_stable(server: &mut Child) -> io::Result<ResourceUsage> {
    const PAUSE: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + REPORT_TIMEOUT;
    let mut last = server.resource_usage()?;
    loop {
        thread::sleep(PAUSE);
        let now = server.resource_usage()?;
        if now.resident_kib == last.resident_kib {
            return Ok(now);
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not come to rest"));
        }
        last = now;
    }
}

impl Measured {
    fn series(&self, peer: Peer) -> Option<&Series<Peer, Outcome>> {
        self.series.iter().find(|series| series.subject == peer)
    }

    /// Bars: less CPU time per call than grpc-go on one thread, and little memory per connection if measurable.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let (own, go) = (self.series(Peer::Polyrpc), self.series(Peer::GrpcGoOneThread));
        let clean = [own, go].iter().flatten().all(|series| series.rounds.iter().all(Result::is_ok));
        let ratio = own.zip(go).and_then(|(own, go)| own.ratio(go, |outcome| outcome.server_cpu_us));
        let kib = own.and_then(|own| own.spread(|outcome| outcome.connection_kib));
        let mut bars = vec![Bar {
            name: format!("grpc_{}_of_grpc-go", name(self.connections)),
            value: ratio.map(|ratio| ratio.median),
            limit: Limit::RatioAtMost(1.0),
            clean,
        }];
        if self.connections >= 1000 {
            bars.push(Bar {
                name: format!("grpc_{}_connection", name(self.connections)),
                value: kib.map(|kib| kib.median),
                limit: Limit::KibAtMost(KIB),
                clean,
            });
        }
        bars
    }
}

pub(super) fn print(measured: &[Measured]) {
    if measured.is_empty() {
        return;
    }
    println!();
    println!(
        "{:<11} {:<17} {:>24} {:>10} {:>20} {:>6} {:>9} {:>9} {:>11} {:>11}",
        "connections",
        "server",
        "calls/s",
        "mean µs",
        "server CPU µs",
        "CPU %",
        "RSS MiB",
        "KiB/conn",
        "set-up µs",
        "CPU µs"
    );
    for Measured { connections, series } in measured {
        for series in series {
            let median = |figure: fn(&Outcome) -> f64, digits: usize| {
                series.spread(figure).map_or_else(String::new, |spread| format!("{:.digits$}", spread.median))
            };
            println!(
                "{:<11} {:<17} {:>24} {:>10} {:>20} {:>6} {:>9} {:>9} {:>11} {:>11}",
                connections,
                series.subject.as_str(),
                with_spread(series.spread(|outcome| outcome.calls_per_second), 0),
                median(|outcome| outcome.mean_us, 0),
                with_spread(series.spread(|outcome| outcome.server_cpu_us), 2),
                median(|outcome| outcome.server_cpu_percent, 0),
                median(|outcome| outcome.resident_kib as f64 / 1024.0, 1),
                median(|outcome| outcome.connection_kib, 1),
                median(|outcome| outcome.set_up_us, 1),
                median(|outcome| outcome.set_up_cpu_us, 1),
            );
            for error in series.rounds.iter().filter_map(|round| round.as_ref().err()) {
                println!("  {error}");
            }
        }
    }
}

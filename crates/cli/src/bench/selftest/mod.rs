//! `polyrpc bench selftest`: measures what is known, to show that this tool leaves out no call and notices its own delays.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::{Client, Format};
use polyrpc_load::{
    Arrivals, Extent, Histogram, Method, Order, Outcome, Pacing, Plan, Profile, Rate, Shape, Sharing, Stop,
    Verdict,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::wake_ups::{WakeUpProbe, WakeUps};
use crate::failure::Failure;
use crate::terminal::{self, Painter, ShortDuration};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many times the server is stopped in each measurement
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=100))]
    stalls: u32,
}

/// Runs all checks. Fails if one of them does.
pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let server = Server::start()?;
    let mut checks = Vec::new();
    for most_in_flight in [10_000, FEW] {
        let title = match most_in_flight {
            FEW => format!("a server that is stopped, with up to {FEW} calls in flight"),
            _ => "a server that is stopped".to_owned(),
        };
        terminal::print(&title)?;
        let probe = WakeUpProbe::start();
        let measured = measure_stalls(&server, options.stalls, most_in_flight);
        let noise = probe.finish();
        let (outcome, stalls) = measured?;
        let expected = Expected { stalls, duration: PERIOD * options.stalls };
        for check in expected.compare(&outcome).into_iter().chain([Check::of_verdict(&outcome, noise)]) {
            terminal::print(&check.to_string())?;
            checks.push(check);
        }
    }
    terminal::print("a generator that is stopped for 300 ms")?;
    let check = measure_stopped_generator(&server)?;
    terminal::print(&check.to_string())?;
    checks.push(check);

    let failed = checks.iter().filter(|check| !check.passed).count();
    if failed > 0 {
        return Err(Failure::new(format!(
            "{failed} of {} checks failed: do not trust what this tool measures",
            checks.len()
        )));
    }
    terminal::print(&format!("all {} checks passed", checks.len()))?;
    Ok(ExitCode::SUCCESS)
}

/// A comparison of what was measured with what is known.
struct Check {
    what: String,
    expected: String,
    measured: String,
    passed: bool,
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paint = Painter::for_stdout();
        let result = if self.passed { paint.green("ok") } else { paint.red("FAILED") };
        write!(
            f,
            "  {:<10}  expected {:<20}  measured {:<20}  {result}",
            self.what, self.expected, self.measured
        )
    }
}

/// Response times of calls at a constant rate while the server stalls.
struct Expected {
    stalls: Vec<Duration>,
    duration: Duration,
}

impl Expected {
    fn compare(&self, outcome: &Outcome) -> Vec<Check> {
        let response = outcome.response();
        let quantiles = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];
        let mut checks: Vec<_> = quantiles
            .into_iter()
            .map(|(name, quantile)| {
                let measured = Duration::from_nanos(response.value_at_quantile(quantile));
                Check::of_times(name, self.quantile(quantile), measured)
            })
            .collect();
        checks.push(Check::of_times("mean", self.mean(), mean(&response)));
        checks.push(Check {
            what: "calls".to_owned(),
            expected: format!("{} answered", outcome.counts.planned),
            measured: format!("{} answered", outcome.counts.succeeded),
            passed: outcome.counts.succeeded == outcome.counts.planned && outcome.counts.planned > 0,
        });
        checks
    }

    /// Share of the calls that wait longer: those that are planned while the rest of a stall is longer.
    fn share_above(&self, time: Duration) -> f64 {
        let waiting: Duration = self.stalls.iter().map(|stall| stall.saturating_sub(time)).sum();
        waiting.as_secs_f64() / self.duration.as_secs_f64()
    }

    fn quantile(&self, quantile: f64) -> Duration {
        let (mut low, mut high) = (Duration::ZERO, self.stalls.iter().max().copied().unwrap_or_default());
        for _ in 0..40 {
            let middle = (low + high) / 2;
            match self.share_above(middle) > 1.0 - quantile {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }

    fn mean(&self) -> Duration {
        let squares: f64 = self.stalls.iter().map(|stall| stall.as_secs_f64().powi(2)).sum();
        Duration::from_secs_f64(squares / 2.0 / self.duration.as_secs_f64())
    }
}

impl Check {
    /// A generator that was delayed must notice, if it was the machine that delayed it.
    fn of_verdict(outcome: &Outcome, noise: WakeUps) -> Self {
        let is_noisy = noise.late_share() > NOISY;
        let is_delayed = matches!(outcome.verdict, Verdict::GeneratorSaturated { .. });
        Self {
            what: "verdict".to_owned(),
            expected: match is_noisy {
                true => format!("any: {:.1} % noise", noise.late_share() * 100.0),
                false => "valid".to_owned(),
            },
            measured: outcome.verdict.name().to_owned(),
            passed: outcome.verdict.is_valid() || is_noisy && is_delayed,
        }
    }

    fn of_times(what: &str, expected: Duration, measured: Duration) -> Self {
        let tolerance = TOLERANCE + expected.mul_f64(0.02);
        Self {
            what: what.to_owned(),
            expected: format!("{} ± {}", ShortDuration(expected), ShortDuration(tolerance)),
            measured: ShortDuration(measured).to_string(),
            passed: measured.abs_diff(expected) <= tolerance,
        }
    }
}

fn mean(histogram: &Histogram<u64>) -> Duration {
    Duration::from_nanos(histogram.mean() as u64)
}

/// Calls a server at a constant rate and stops it once in each period. Returns the length of each stop.
fn measure_stalls(server: &Server, stalls: u32, most: usize) -> Result<(Outcome, Vec<Duration>), Failure> {
    let plan = plan(server, PERIOD * stalls, most)?;
    let load = thread::spawn(move || polyrpc_load::run(&plan, &Stop::default(), |_| {}));
    thread::sleep(WARMUP + PERIOD / 4);
    let mut lengths = Vec::new();
    for _ in 0..stalls {
        let stopped = Instant::now();
        server.signal(Signal::STOP)?;
        thread::sleep(STALL);
        server.signal(Signal::CONT)?;
        lengths.push(stopped.elapsed());
        thread::sleep(PERIOD.saturating_sub(stopped.elapsed()));
    }
    let outcome = load.join().map_err(|_| Failure::new("the load panicked"))?;
    Ok((outcome.map_err(|error| Failure::new(error.to_string()))?, lengths))
}

fn plan(server: &Server, duration: Duration, most_in_flight: usize) -> Result<Plan, Failure> {
    let url = server.url();
    let method = Method {
        name: "echo".to_owned(),
        target: "echo".to_owned(),
        weight: 1,
        shape: Shape::Unary,
        messages: [Body::new(Format::MessagePack, &b"\xa5hello"[..])].into(),
        expected: None,
        order: Order::Sequence,
        options: CallOptions::default(),
    };
    let rate = Rate::per_second(RATE).map_err(Failure::new)?;
    Ok(Plan {
        client: Arc::new(move || Ok(Client::builder(&url))),
        methods: vec![method],
        pacing: Pacing::Open { profile: Profile::Constant(rate), arrivals: Arrivals::Constant },
        warmup: WARMUP,
        extent: Extent::Time(duration),
        sharing: Sharing::Shared,
        connections: 1,
        threads: 1,
        most_in_flight,
        patience: Duration::from_secs(5),
        seed: 1,
        server: None,
    })
}

/// Runs this command as a generator and stops it. It must report that its measurement is invalid.
fn measure_stopped_generator(server: &Server) -> Result<Check, Failure> {
    let url = server.url();
    let arguments = [
        "bench",
        &url,
        "echo",
        "\"hello\"",
        "--rate",
        "1k",
        "--duration",
        "3s",
        "--warmup",
        "0s",
        "--json",
        "-",
    ];
    let generator = Child::of(&arguments)?;
    thread::sleep(Duration::from_millis(1_500));
    generator.signal(Signal::STOP)?;
    thread::sleep(Duration::from_millis(300));
    generator.signal(Signal::CONT)?;
    let output =
        generator.wait_with_output().map_err(|error| Failure::system("wait for the generator", &error))?;
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let measured = result["verdict"]["outcome"].as_str().unwrap_or("no result").to_owned();
    let expected =
        Verdict::GeneratorSaturated { lag_p99: Duration::ZERO, lag_max: Duration::ZERO, late: 0.0 };
    let is_code = output.status.code() == Some(i32::from(super::INVALID));
    Ok(Check {
        what: "verdict".to_owned(),
        expected: expected.name().to_owned(),
        passed: measured == expected.name() && is_code,
        measured,
    })
}

/// This command as another process.
trait Process: Sized {
    fn of(arguments: &[&str]) -> Result<Self, Failure>;
    fn signal(&self, signal: Signal) -> Result<(), Failure>;
}

impl Process for Child {
    fn of(arguments: &[&str]) -> Result<Self, Failure> {
        let program = env::current_exe().map_err(|error| Failure::system("find this program", &error))?;
        let mut command = Command::new(program);
        let command =
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(|error| Failure::system("start this program again", &error))
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let id = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Failure::new("a process has no id"))?;
        kill_process(id, signal).map_err(|error| Failure::system("send a signal", &error.into()))
    }
}

/// A server in another process; killed when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Result<Self, Failure> {
        let mut child = Child::of(&["serve", "--listen", "127.0.0.1:0"])?;
        let lines = child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
        let mut address = None;
        for line in lines.map_while(Result::ok) {
            if let Some(listening) = line.strip_prefix("listening main ") {
                address = Some(listening.to_owned());
            }
            if line.starts_with("ready") {
                break;
            }
        }
        match address {
            Some(address) => Ok(Self { child, address }),
            None => {
                // It has ended already, or does not listen.
                let _ = child.kill();
                let _ = child.wait();
                Err(Failure::new("the server of the self-test did not start"))
            }
        }
    }

    fn url(&self) -> String {
        format!("rpcx://{}", self.address)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        self.child.signal(signal)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about a process that cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls per second: so few that a stall's backlog is answered within the tolerance.
const RATE: u64 = 1_000;
const WARMUP: Duration = Duration::from_millis(500);
const PERIOD: Duration = Duration::from_secs(2);
const STALL: Duration = Duration::from_millis(250);
/// Deviation that is due to the machine: the times of signals, and the backlog of a stall.
const TOLERANCE: Duration = Duration::from_millis(5);
/// Share of late sleeps of another thread from which the machine delays programs.
const NOISY: f64 = 0.005;
/// A number of calls in flight that a stall exceeds.
const FEW: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_of_equal_length_have_the_quantiles_of_the_formula() {
        let expected = Expected { stalls: vec![STALL; 4], duration: PERIOD * 4 };
        let formula = polyrpc_load::Stalls { stall: STALL, period: PERIOD, utilization: 0.0 };
        for quantile in [0.5, 0.9, 0.99] {
            assert!(
                expected.quantile(quantile).abs_diff(formula.quantile(quantile)) < Duration::from_micros(1)
            );
        }
        assert!(expected.mean().abs_diff(formula.mean()) < Duration::from_micros(1));
    }
}

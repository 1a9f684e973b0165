//! One run: a server and a client as separate processes, one window, and its result.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::exchange::Protocol;
use crate::measure;
use crate::process::{Child, Done, Listening, Ready};
use crate::subject::{ClientOptions, ServerOptions, Setup, Shape, Subject};

/// The workload of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Workload {
    pub(crate) protocol: Protocol,
    /// Length of the message in bytes.
    pub(crate) payload: usize,
    pub(crate) shape: Shape,
    pub(crate) placement: Placement,
}

/// Cores of server and client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Placement {
    /// Both on one core: the measurement covers the work of a call, not the wake-up of another core, which
    /// on a virtual machine costs ten times as much.
    OneCore,
    /// Chosen by the kernel.
    Free,
}

/// Durations of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Timing {
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
}

/// Parses an option in seconds, such as the length of a window.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "expected 0 to 3600 seconds".to_owned())
}

/// Result of a run. CPU time is user and system time of the whole process, per call.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) calls_per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    pub(crate) client_cpu_us: f64,
    pub(crate) server_cpu_us: f64,
}

impl Outcome {
    /// CPU time per call, client and server together.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.client_cpu_us + self.server_cpu_us
    }
}

/// Runs the workload once with `subject`.
pub(crate) fn run(subject: Subject, workload: &Workload, timing: Timing) -> io::Result<Outcome> {
    let setup = setup(subject, workload.shape)?;
    let core = match workload.placement {
        Placement::OneCore => Some(measure::last_core()?),
        Placement::Free => None,
    };
    let server = server(setup, workload.protocol, workload.payload, core);
    run_pair(&server, timing, |connect| {
        ClientOptions {
            kind: setup.client,
            connect,
            protocol: workload.protocol,
            floor_frames: setup.floor_frames,
            payload: workload.payload,
            connections: setup.connections,
            in_flight: setup.in_flight,
            warm_up: timing.warm_up.as_millis() as u64,
            window: timing.window.as_millis() as u64,
            core,
        }
        .to_arguments()
    })
}

/// Starts a server and its client, and runs one window.
pub(crate) fn run_pair(
    server: &[String],
    timing: Timing,
    client: impl FnOnce(SocketAddr) -> Vec<String>,
) -> io::Result<Outcome> {
    run_pair_with(None, server, timing, client)
}

/// The same with both processes of another build of this program.
pub(crate) fn run_pair_with(
    program: Option<&Path>,
    server: &[String],
    timing: Timing,
    client: impl FnOnce(SocketAddr) -> Vec<String>,
) -> io::Result<Outcome> {
    let start = |arguments: &[String]| match program {
        Some(program) => Child::start_program(program, arguments),
        None => Child::start(arguments),
    };
    let mut server = start(server)?;
    let listening: Listening = server.read_report(REPORT_TIMEOUT)?;
    let mut client = start(&client(listening.address))?;
    let Ready {} = client.read_report(timing.warm_up + REPORT_TIMEOUT)?;
    let before = server.resource_usage()?;
    client.send_go()?;
    let done: Done = client.read_report(timing.window + REPORT_TIMEOUT)?;
    let after = server.resource_usage()?;
    Ok(outcome(&done, after.cpu_ns - before.cpu_ns))
}

/// The programs of the subject.
///
/// # Errors
///
/// If this build has none.
pub(crate) fn setup(subject: Subject, shape: Shape) -> io::Result<Setup> {
    subject.setup(shape).ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "not part of this build"))
}

/// Starts a server and waits until it listens.
pub(crate) fn start_server(
    setup: Setup,
    protocol: Protocol,
    payload: usize,
    core: Option<usize>,
) -> io::Result<(Child, Listening)> {
    start(&server(setup, protocol, payload, core))
}

fn server(setup: Setup, protocol: Protocol, payload: usize, core: Option<usize>) -> Vec<String> {
    let listen = ([127, 0, 0, 1], 0).into();
    ServerOptions { kind: setup.server, listen, protocol, payload, core }.to_arguments()
}

fn start(server: &[String]) -> io::Result<(Child, Listening)> {
    let server = Child::start(server)?;
    let listening = server.read_report(REPORT_TIMEOUT)?;
    Ok((server, listening))
}

/// Extra time allowed to a process.
pub(crate) const REPORT_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn outcome(done: &Done, server_cpu_ns: u64) -> Outcome {
    let tally = &done.tally;
    let us = |ns: u64| ns as f64 / 1e3;
    let a_call = |ns: u64| us(ns) / tally.calls as f64;
    Outcome {
        calls: tally.calls,
        errors: tally.errors,
        calls_per_second: tally.calls as f64 / (tally.elapsed_ns as f64 / 1e9),
        p50_us: us(tally.p50_ns),
        p99_us: us(tally.p99_ns),
        p999_us: us(tally.p999_ns),
        max_us: us(tally.max_ns),
        client_cpu_us: a_call(done.cpu_ns),
        server_cpu_us: a_call(server_cpu_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_those_of_a_duration() {
        assert_eq!(["0", "1.5", "3600"].map(parse_seconds), [Ok(0.0), Ok(1.5), Ok(3600.0)]);
        for wrong in ["-1", "NaN", "inf", "1e300", "3601", "1s", ""] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}

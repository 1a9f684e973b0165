//! One window: a fresh server, checked before and after a client measures it.

use clap::ValueEnum;
use polyrpc_bench_report::model::{Latency, Window};
use polyrpc_load::Stop;

use super::client::{self, ClientError, Measured, Messages};
use super::contract::{CHECKS, Check, CheckError};
use super::definition::CellPlan;
use super::peers::Peer;
use super::server::Server;
use crate::message::Wire;
use crate::terminal;

/// Result of a window.
pub(super) struct Outcome {
    pub(super) window: Window,
    pub(super) latency: Latency,
    pub(super) commands: Vec<String>,
}

/// Why a window has no result.
pub(super) enum WindowError {
    /// This program was interrupted.
    Interrupted,
    /// A client or a server failed.
    Failed(String),
    /// The server gave a wrong answer: none of its figures count.
    Wrong(String),
}

/// Client and server.
pub(super) struct Pair<'a> {
    /// `None` for this program's client.
    pub(super) client: Option<&'a Peer>,
    pub(super) server: &'a Peer,
}

pub(super) fn measure(
    pair: &Pair<'_>,
    plan: &CellPlan,
    messages: &Messages,
    round: u64,
    stop: &Stop,
) -> Result<Outcome, WindowError> {
    let mut server = Server::start(pair.server, plan).map_err(WindowError::Failed)?;
    let measured = with_server(pair, plan, messages, &mut server, stop);
    let ended = server.ended();
    let memory = server.memory();
    let command = server.command.clone();
    let measured = match (measured, ended) {
        (Err(WindowError::Interrupted), _) => return Err(WindowError::Interrupted),
        (_, Some(how)) => return Err(WindowError::Failed(format!("the server {how}"))),
        (Err(error), None) => return Err(error),
        (Ok(measured), None) => measured,
    };
    server.stop();
    let mut window = window(&measured, plan, round);
    window.server_rss_bytes = memory;
    Ok(Outcome { window, latency: measured.latency, commands: vec![command, measured.command] })
}

fn with_server(
    pair: &Pair<'_>,
    plan: &CellPlan,
    messages: &Messages,
    server: &mut Server,
    stop: &Stop,
) -> Result<Measured, WindowError> {
    // Protocols that this program does not speak: there the client compares every reply.
    let check = match server.url.starts_with("floor:") || server.url.starts_with("unchecked:") {
        true => None,
        false => Some(checker(server, plan)?),
    };
    check_once(check.as_ref(), plan, CHECKS[0])?;
    let measured = match pair.client {
        None => client::run_polyrpc(server, plan, messages, stop),
        Some(peer) => client::run_own(peer, server, plan, messages, stop),
    };
    let measured = measured.map_err(|error| match error {
        ClientError::Interrupted => WindowError::Interrupted,
        ClientError::Failed(text) => WindowError::Failed(text),
    })?;
    if stop.is_stopped() {
        return Err(WindowError::Interrupted);
    }
    check_once(check.as_ref(), plan, CHECKS[1])?;
    Ok(measured)
}

fn checker(server: &Server, plan: &CellPlan) -> Result<Check, WindowError> {
    let format = plan.lane.format.as_deref().map(|name| Wire::from_str(name, true));
    let format = format.transpose().map_err(WindowError::Failed)?;
    let scheme = client::scheme(&server.url);
    Check::new(&server.url, scheme, plan.contract, format)
        .map_err(|failure| WindowError::Failed(failure.to_string()))
}

fn check_once(check: Option<&Check>, plan: &CellPlan, letter: &str) -> Result<(), WindowError> {
    let Some(check) = check else { return Ok(()) };
    let checked = terminal::block_on(check.call(plan.size, letter));
    let checked = checked.map_err(|failure| WindowError::Failed(failure.to_string()))?;
    checked.map_err(|error| match error {
        CheckError::Unanswered(_) => WindowError::Failed(error.to_string()),
        CheckError::Wrong(_) => WindowError::Wrong(error.to_string()),
    })
}

fn window(measured: &Measured, plan: &CellPlan, round: u64) -> Window {
    let histogram = measured.latency.histogram();
    let succeeded = histogram.len();
    let rate = succeeded as f64 / measured.window_s;
    let per_call = |cpu: Option<std::time::Duration>| {
        cpu.filter(|_| succeeded > 0).map(|cpu| (cpu.as_nanos() as f64 / succeeded as f64).round())
    };
    let each = |count: u64| (succeeded > 0).then(|| (count as f64 / succeeded as f64 * 10.0).round() / 10.0);
    let invalid = measured.invalid.clone().or_else(|| contradiction(measured, plan, rate));
    Window {
        round,
        rate: (rate * 10.0).round() / 10.0,
        succeeded,
        failed: measured.failed,
        mean_ns: histogram.mean().round(),
        min_ns: histogram.min(),
        max_ns: histogram.max(),
        quantiles_ns: Window::QUANTILES
            .into_iter()
            .filter_map(|(name, quantile)| {
                Some((name.to_owned(), measured.latency.quantile(quantile)?.value))
            })
            .collect(),
        client_cpu_ns: per_call(measured.client_cpu),
        server_cpu_ns: per_call(measured.server_cpu).filter(|cpu| *cpu > 0.0),
        client_rss_bytes: measured.client_rss,
        server_rss_bytes: None,
        allocated_bytes: measured.allocated.and_then(|(bytes, _)| each(bytes)),
        allocations: measured.allocated.and_then(|(_, count)| each(count)),
        invalid,
    }
}

/// Why the figures contradict each other.
fn contradiction(measured: &Measured, plan: &CellPlan, rate: f64) -> Option<String> {
    let histogram = measured.latency.histogram();
    let (succeeded, failed) = (histogram.len(), measured.failed);
    if succeeded == 0 {
        let error = measured.error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
        return Some(format!("no call succeeded{error}"));
    }
    if failed * 100 > succeeded {
        let error = measured.error.as_deref().unwrap_or("unknown");
        return Some(format!("{failed} of {} calls failed: {error}", succeeded + failed));
    }
    if plan.interval_s.is_some() {
        return None;
    }
    // Little's law: callers that always call are all in a call. A call that began before the window or ends after it
    // counts in one of the two only.
    let busy = rate * histogram.mean() / 1e9;
    let callers = plan.callers as f64;
    let edge = 2.0 * histogram.max() as f64 / 1e9 / measured.window_s;
    let tolerance = LITTLE + edge.min(1.0);
    ((busy / callers - 1.0).abs() > tolerance).then(|| {
        format!(
            "by Little's law {busy:.1} callers were in a call, not {}: calls per second times mean latency",
            plan.callers
        )
    })
}

/// Tolerated difference from Little's law.
const LITTLE: f64 = 0.02;

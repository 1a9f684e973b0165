//! One window: a fresh server, checked before and after a client measures it.

use std::time::Duration;

use clap::ValueEnum;
use polyrpc_bench_report::model::{Latency, Window};
use polyrpc_load::Stop;

use super::client::{self, ClientError, ClientResult, Messages};
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

/// The programs that run in a window.
pub(super) struct Programs<'a> {
    /// `None` for this program's client.
    pub(super) client: Option<&'a Peer>,
    pub(super) server: &'a Peer,
}

pub(super) fn measure(
    programs: &Programs<'_>,
    plan: &CellPlan,
    messages: &Messages,
    round: u64,
    stop: &Stop,
) -> Result<Outcome, WindowError> {
    let mut server = Server::start(programs.server, plan).map_err(WindowError::Failed)?;
    let measured = measure_server(programs, plan, messages, &mut server, stop);
    let ended = server.wait_for_end(match &measured {
        // The connections of a process are closed a moment before its end can be seen.
        Err(WindowError::Failed(_)) => END_TIMEOUT,
        _ => Duration::ZERO,
    });
    let memory = server.memory();
    let command = server.command.clone();
    let measured = match (measured, ended) {
        (Err(WindowError::Interrupted), _) => return Err(WindowError::Interrupted),
        (Err(WindowError::Failed(error)), Some(how)) => {
            return Err(WindowError::Failed(format!("the server {how}; {error}")));
        }
        (_, Some(how)) => return Err(WindowError::Failed(format!("the server {how}"))),
        (Err(error), None) => return Err(error),
        (Ok(measured), None) => measured,
    };
    server.stop();
    let mut window = window(&measured, plan, round);
    window.server_rss_bytes = memory;
    Ok(Outcome { window, latency: measured.latency, commands: vec![command, measured.command] })
}

fn measure_server(
    programs: &Programs<'_>,
    plan: &CellPlan,
    messages: &Messages,
    server: &mut Server,
    stop: &Stop,
) -> Result<ClientResult, WindowError> {
    // Protocols that this program does not speak: there the client compares every reply.
    let check = match server.url.starts_with("floor:") || server.url.starts_with("unchecked:") {
        true => None,
        false => Some(checker(server, plan)?),
    };
    check_once(check.as_ref(), plan, CHECKS[0])?;
    let measured = match programs.client {
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
    let format = plan.pair.format.as_deref().map(|name| Wire::from_str(name, true));
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

fn window(measured: &ClientResult, plan: &CellPlan, round: u64) -> Window {
    let histogram = measured.latency.histogram();
    let succeeded = histogram.len();
    let rate = succeeded as f64 / measured.window_s;
    let per_call = |cpu: Option<Duration>| {
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
fn contradiction(measured: &ClientResult, plan: &CellPlan, rate: f64) -> Option<String> {
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
    let mean_s = histogram.mean() / 1e9;
    check_little(plan.callers, rate, mean_s, histogram.max() as f64 / 1e9 / measured.window_s)
}

/// Little's law: callers that always call are all in a call. Of each caller one call crosses each end of the window. It
/// counts as a whole at one end and not at all at the other, so the calls of a caller may last longer or shorter than
/// the window by one call. `longest` is the longest call, as a share of the window.
fn check_little(callers: usize, rate: f64, mean_s: f64, longest: f64) -> Option<String> {
    let busy = rate * mean_s;
    ((busy / callers as f64 - 1.0).abs() > LITTLE + longest).then(|| {
        format!(
            "by Little's law {busy:.1} callers were in a call, not {callers}: calls per second times mean latency"
        )
    })
}

/// Time for the end of a server after its client failed.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Tolerated difference from Little's law.
const LITTLE: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_times_latency_is_the_number_of_callers_but_for_the_calls_at_the_ends() {
        let contradicts = |rate, mean_s, longest| check_little(10, rate, mean_s, longest).is_some();
        // Ten callers whose calls take 1 ms.
        assert!(!contradicts(10_000.0, 0.001, 0.0));
        assert!(!contradicts(10_190.0, 0.001, 0.0) && !contradicts(9_810.0, 0.001, 0.0));
        // The clock starts too late, or calls are left out.
        assert!(contradicts(10_000.0, 0.0005, 0.001) && contradicts(5_000.0, 0.001, 0.001));
        // Times are too long, as in the document of rpcx.
        assert!(contradicts(10_000.0, 0.0015, 0.001));
        // Few calls of each caller: with the longest of a fifth of the window, one more or less is no contradiction.
        assert!(!contradicts(10_000.0, 0.00119, 0.2) && contradicts(10_000.0, 0.00123, 0.2));
        let text = check_little(10, 5_000.0, 0.001, 0.0).unwrap();
        assert_eq!(
            text,
            "by Little's law 5.0 callers were in a call, not 10: calls per second times mean latency"
        );
    }
}

//! A client while it measures: ours is this command, a peer's own is described by its peer file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polyrpc_bench_report::hdr;
use polyrpc_bench_report::model::{Document, Latency, Run};
use polyrpc_load::{Histogram, Stop};
use serde::Deserialize;

use super::contract::{Contract, LOAD};
use super::definition::CellPlan;
use super::peers::Peer;
use super::program::{NoLine, Output, Program};
use super::server::{Server, expand, format_command, own_program};
use crate::bench::directory::PrivateDirectory;
use crate::failure::Failure;

/// What a client measured.
pub(super) struct ClientResult {
    pub(super) latency: Latency,
    pub(super) window_s: f64,
    pub(super) failed: u64,
    /// The first error, if calls failed.
    pub(super) error: Option<String>,
    pub(super) client_cpu: Option<Duration>,
    pub(super) server_cpu: Option<Duration>,
    pub(super) client_rss: Option<u64>,
    /// Bytes and number of the client's allocations during the window.
    pub(super) allocated: Option<(u64, u64)>,
    /// Why the figures say nothing about the server.
    pub(super) invalid: Option<String>,
    pub(super) command: String,
}

/// What a peer's own client prints at its end.
#[derive(Debug, Deserialize)]
struct OwnResult {
    #[serde(default)]
    failed: u64,
    error: Option<String>,
    window_s: f64,
    cpu_s: Option<f64>,
    rss_bytes: Option<u64>,
    allocated_bytes: Option<u64>,
    allocations: Option<u64>,
    hdr: String,
}

/// Why a client measured nothing.
pub(super) enum ClientError {
    /// This program was interrupted.
    Interrupted,
    /// In words.
    Failed(String),
}

/// Messages in files, for clients.
pub(super) struct Messages {
    directory: PrivateDirectory,
}

impl Messages {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self { directory: PrivateDirectory::new("suite")? })
    }

    /// A file with the request: as JSON for our client, as protobuf for others.
    fn write_request(&self, plan: &CellPlan, scheme: &str, is_json: bool) -> Result<PathBuf, String> {
        let kind = if is_json { "json" } else { "protobuf" };
        let path = self.directory.path().join(format!("{}-{scheme}-{}.{kind}", plan.contract, plan.size));
        if path.exists() {
            return Ok(path);
        }
        let json = plan.contract.request(plan.size, scheme, LOAD);
        let bytes = if is_json { json.into_bytes() } else { encode_protobuf(plan.contract, &json)? };
        fs::write(&path, bytes).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        Ok(path)
    }

    /// A command for readers: the directory of the messages is gone when they read it.
    fn format_command(&self, words: &[String]) -> String {
        format_command(words).replace(&format!("{}/", self.directory.path().display()), "")
    }
}

fn encode_protobuf(contract: Contract, json: &str) -> Result<Vec<u8>, String> {
    let encode = || {
        // Nothing is called: only the protocol matters for the encoding.
        let client = polyrpc::Client::builder("grpc://127.0.0.1:1").build()?;
        let translator = contract.translator(&client, "grpc", None)?;
        Ok::<_, Failure>(translator.encode_request(json.as_bytes())?.bytes.to_vec())
    };
    encode().map_err(|failure| failure.to_string())
}

/// Runs this command as the client.
pub(super) fn run_polyrpc(
    server: &Server,
    plan: &CellPlan,
    messages: &Messages,
    stop: &Stop,
) -> Result<ClientResult, ClientError> {
    let scheme = scheme(&server.url);
    let message = messages.write_request(plan, scheme, true).map_err(ClientError::Failed)?;
    let own = own_program().map_err(ClientError::Failed)?;
    let seconds = |seconds: f64| format!("{}ms", (seconds * 1e3).round());
    let mut words = vec![own, "bench".to_owned(), server.url.clone()];
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    add(&[plan.contract.target(scheme), &format!("@{}", message.display())]);
    if let Some(format) = &plan.pair.format {
        add(&["--format", format]);
    }
    match plan.interval_s {
        Some(interval) => add(&["--rate", &format!("{}", plan.callers as f64 / interval)]),
        None => add(&["--callers", &plan.callers.to_string()]),
    }
    match plan.connections == plan.callers && plan.interval_s.is_none() {
        true => add(&["--connection-mode", "pooled"]),
        false => add(&["--connections", &plan.connections.to_string()]),
    }
    add(&["--warmup", &seconds(plan.warmup_s), "--duration", &seconds(plan.window_s)]);
    let command = messages.format_command(&words);
    words.extend(["--server-pid".to_owned(), server.id().to_string(), "--json".to_owned(), "-".to_owned()]);
    let program = Program::start(Path::new("."), &words, Output::Result).map_err(ClientError::Failed)?;
    let text = read_all(program, plan, stop)?;
    let document = Document::read(&text).map_err(|error| ClientError::Failed(error.to_string()))?;
    let Document::Run(run) = document else {
        return Err(ClientError::Failed("the client's result is no run".to_owned()));
    };
    Ok(from_run(&run, command))
}

fn from_run(run: &Run, command: String) -> ClientResult {
    let seconds = |seconds: Option<f64>| seconds.map(Duration::from_secs_f64);
    let outcome = run.verdict.outcome;
    ClientResult {
        latency: run.latency.response.clone(),
        window_s: run.duration_s,
        failed: run.error_count(),
        error: run.errors.first().map(|error| error.error.clone()),
        client_cpu: seconds(run.resources.client.cpu_s),
        server_cpu: seconds(run.resources.server.cpu_s),
        client_rss: run.resources.client.max_rss_bytes,
        allocated: None,
        invalid: (!outcome.is_valid())
            .then(|| outcome.to_string().trim_start_matches("INVALID: ").to_owned()),
        command,
    }
}

/// The whole output of a client.
fn read_all(mut program: Program, plan: &CellPlan, stop: &Stop) -> Result<String, ClientError> {
    let deadline = deadline(plan);
    let mut text = String::new();
    loop {
        match next_line(&mut program, deadline, stop)? {
            Some(line) => {
                text.push_str(&line);
                text.push('\n');
            }
            None if text.is_empty() => return Err(end_error(program)),
            None => return Ok(text),
        }
    }
}

/// Runs the client of a peer.
pub(super) fn run_own(
    peer: &Peer,
    server: &Server,
    plan: &CellPlan,
    messages: &Messages,
    stop: &Stop,
) -> Result<ClientResult, ClientError> {
    let failed = |text: String| ClientError::Failed(text);
    let template =
        peer.definition.client.as_deref().ok_or_else(|| failed("it has no client of its own".to_owned()))?;
    let message = messages.write_request(plan, "grpc", false).map_err(failed)?;
    let mut words = Vec::new();
    for word in expand(template, 0, plan).map_err(failed)? {
        match word.as_str() {
            "{load}" => words.extend(load_arguments(server, plan, &message)),
            _ => words.push(word.replace("{address}", &server.address).replace("{url}", &server.url)),
        }
    }
    let command = messages.format_command(&words);
    let mut program = Program::start(&peer.dir, &words, Output::Result).map_err(failed)?;
    let deadline = deadline(plan);
    let (mut before, mut after) = (None, None);
    loop {
        let Some(line) = next_line(&mut program, deadline, stop)? else { return Err(end_error(program)) };
        match line.as_str() {
            "begin" => before = server.cpu(),
            "end" => after = server.cpu(),
            _ if line.starts_with('{') => {
                let server_cpu = before.zip(after).map(|(before, after)| after.saturating_sub(before));
                return from_own(&line, server_cpu, command).map_err(failed);
            }
            _ => {}
        }
    }
}

/// The arguments that every own client takes.
fn load_arguments(server: &Server, plan: &CellPlan, message: &Path) -> Vec<String> {
    [
        ("--address", server.address.clone()),
        ("--contract", plan.contract.to_string()),
        ("--message", message.display().to_string()),
        ("--callers", plan.callers.to_string()),
        ("--connections", plan.connections.to_string()),
        ("--warmup", plan.warmup_s.to_string()),
        ("--window", plan.window_s.to_string()),
        ("--interval", plan.interval_s.unwrap_or_default().to_string()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect()
}

fn from_own(line: &str, server_cpu: Option<Duration>, command: String) -> Result<ClientResult, String> {
    let result: OwnResult =
        serde_json::from_str(line).map_err(|error| format!("the client's result cannot be read: {error}"))?;
    let histogram: Histogram<u64> = hdr::decode(&result.hdr)
        .map_err(|error| format!("the client's histogram cannot be read: {error}"))?;
    let is_positive = result.window_s.is_finite() && (1e-6..1e6).contains(&result.window_s);
    if !is_positive || result.cpu_s.is_some_and(|cpu| !(0.0..1e9).contains(&cpu)) {
        return Err("the client's result has impossible times".to_owned());
    }
    Ok(ClientResult {
        latency: Latency::new(histogram),
        window_s: result.window_s,
        failed: result.failed,
        error: result.error,
        client_cpu: result.cpu_s.map(Duration::from_secs_f64),
        server_cpu,
        client_rss: result.rss_bytes,
        allocated: result.allocated_bytes.zip(result.allocations),
        invalid: None,
        command,
    })
}

/// The next line of a client; `None` if it has ended.
fn next_line(program: &mut Program, deadline: Instant, stop: &Stop) -> Result<Option<String>, ClientError> {
    loop {
        match program.line(POLL_INTERVAL) {
            Ok(line) => return Ok(Some(line)),
            Err(NoLine::Ended) => return Ok(None),
            Err(NoLine::TimedOut) if stop.is_stopped() => return Err(ClientError::Interrupted),
            Err(NoLine::TimedOut) if Instant::now() >= deadline => {
                return Err(ClientError::Failed("the client did not end in time".to_owned()));
            }
            Err(NoLine::TimedOut) => {}
        }
    }
}

fn end_error(mut program: Program) -> ClientError {
    let how = program
        .wait(POLL_INTERVAL * 10)
        .map_or_else(|| "closed its output".to_owned(), |status| program.describe(status));
    ClientError::Failed(format!("the client {how}"))
}

/// Opening connections takes time, too.
fn deadline(plan: &CellPlan) -> Instant {
    let seconds = plan.warmup_s + plan.window_s + 30.0 + plan.connections as f64 / 100.0;
    Instant::now() + Duration::from_secs_f64(seconds)
}

/// The scheme of a URL.
pub(super) fn scheme(url: &str) -> &str {
    url.split_once("://").map_or("", |(scheme, _)| scheme)
}

/// Between two looks at whether this program was interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

//! `polyrpc bench`: measures a server's response times and its cost per call.

mod command_line;
mod options;
mod workload;

mod listener;

mod interrupt;
mod process_group;
mod progress;

mod find_max;

mod selftest;
mod wake_ups;

mod anchors;

mod machine;
mod open_files;

mod latency;
mod report;

mod directory;
mod document;
mod output;
mod stored;

mod ab;
mod noise;

mod peer;
mod suite;
mod workers;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use polyrpc::client::{self, CallOptions};
use polyrpc::codec::Body;
use polyrpc::discovery::redacted;
use polyrpc::{Client, Code, Scope};
use polyrpc_load::{CallKind, Method, Outcome, Plan, Process, RunError, Second, Stop};

use self::command_line::command_line;
use self::options::{LoadOptions, Use};
use self::output::{FileOptions, Files, Output};
use self::progress::Progress;
use self::report::{ReplyCounts, Report, Setting};
use self::stored::{Baseline, BaselineOptions};
use self::workers::{Division, TargetOptions, WorkersOptions};
use self::workload::{Encoding, WorkloadOptions};
use crate::call::{CommonOptions, DEFAULT_TIMEOUT};
use crate::failure::Failure;
use crate::message::{self, Translator};
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_long_help = HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check this tool: measure stalls of a server and of a generator whose durations are known
    Selftest(selftest::Options),
    /// Compare this generator with other load tools, on the same server in one run
    Anchors(anchors::Options),
    /// Compare two servers under the same load, in interleaved rounds
    Ab(Box<ab::Options>),
    /// Reproduce published benchmarks, with PolyRPC next to the original systems
    Suite(Box<suite::Options>),
    #[command(hide = true)]
    Peer(peer::Options),
    /// Make a share of the calls of a `polyrpc bench` on another machine
    Worker(workers::Options),
    /// Show results that --json stored: as text, as a page, or compared with a baseline
    Report(stored::Options),
}

/// Options of a load.
#[derive(Debug, Clone, Args)]
struct RunOptions {
    /// The server, as for `call`
    #[arg(required = true)]
    url: Option<String>,
    /// The method, `Service/Method`, or a function's name
    #[arg(required_unless_present = "mix")]
    target: Option<String>,
    /// The message as JSON; @FILE reads it from a file, - from standard input; it may have placeholders, see --feed
    #[arg(value_name = "JSON")]
    argument: Option<String>,
    #[command(flatten)]
    message: message::Options,
    #[command(flatten)]
    common: CommonOptions,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    workload: WorkloadOptions,
    /// The server's process on this machine, whose CPU time and memory are reported [default: the one that listens
    /// there]
    #[arg(long, value_name = "PID", help_heading = "Output")]
    server_pid: Option<u32>,
    /// Print a line for each second on standard error
    #[arg(long, help_heading = "Output")]
    live: bool,
    /// Also write the results as JSON; - writes them to standard output instead of the report
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    #[command(flatten)]
    files: FileOptions,
    #[command(flatten)]
    baseline: BaselineOptions,
    #[command(flatten)]
    workers: WorkersOptions,
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    open_files::raise_limit();
    match options.action {
        Some(Action::Selftest(options)) => selftest::run(&options),
        Some(Action::Anchors(options)) => anchors::run(&options),
        Some(Action::Ab(options)) => ab::run(*options),
        Some(Action::Suite(options)) => suite::run(&options),
        Some(Action::Peer(options)) => peer::run(&options),
        Some(Action::Worker(options)) => workers::serve(&options),
        Some(Action::Report(options)) => stored::run(&options),
        None => options.run.run(),
    }
}

/// A load that is ready to run.
struct PreparedLoad {
    plan: Plan,
    setting: Setting,
    /// Why the server's process is unknown.
    server: Result<Process, String>,
}

impl RunOptions {
    fn run(self) -> Result<ExitCode, Failure> {
        let of_one_run = self.files.given_option().or_else(|| self.baseline.given_option());
        if let (true, Some(option)) =
            (self.load.find_max, of_one_run.or_else(|| self.live.then_some("--live")))
        {
            return Err(Failure::new(format!("{option} is for one run; --find-max makes several")));
        }
        self.check_workers()?;
        let output = Output::open(self.json.as_deref())?;
        let files = Files::open(&self.files)?;
        let baseline = self.baseline.read()?;
        let prepared = self.prepare()?;
        if self.load.find_max {
            return find_max::run(&self.load, &prepared, &output);
        }
        let stop = interrupt::watch()?;
        let mut progress = Progress::new(&prepared.plan, self.live);
        let outcome = self.measure(&prepared.plan, &stop, |second| progress.show(second));
        progress.finish();
        let outcome = outcome?;
        self.show(prepared, &outcome, baseline.as_ref(), (&output, &files))
    }

    /// Makes the calls, here or by workers.
    fn measure(&self, plan: &Plan, stop: &Stop, on_second: impl FnMut(&Second)) -> Result<Outcome, Failure> {
        match self.workers.count() {
            0 => polyrpc_load::run(plan, stop, on_second).map_err(|error| self.failure(error)),
            _ => {
                let division = Division { workers: &self.workers, plan, target: self.worker_target()? };
                workers::run(&division, stop, on_second)
            }
        }
    }

    /// How workers call the server. Options that they do not get are rejected.
    fn worker_target(&self) -> Result<TargetOptions, Failure> {
        let (credential, timeout) = self.common.for_workers().map_err(|option| {
            Failure::new(format!("{option} is for calls of this process; workers call the server without it"))
        })?;
        Ok(TargetOptions { url: self.url().to_owned(), credential, timeout })
    }

    /// Rejects options that workers do not support, before anything is opened or called.
    fn check_workers(&self) -> Result<(), Failure> {
        if self.workers.count() == 0 {
            return Ok(());
        }
        let reason = match () {
            () if self.load.find_max => "--find-max makes several runs; --workers make one",
            () if !self.load.is_open() => {
                "workers make calls at a --rate or in --stages, which they compare with their bounds"
            }
            () if self.server_pid.is_some() => "--server-pid is for calls of this process, not for --workers",
            () => return self.worker_target().map(drop),
        };
        Err(Failure::new(reason))
    }

    fn show(
        &self,
        prepared: PreparedLoad,
        outcome: &Outcome,
        baseline: Option<&Baseline>,
        (output, files): (&Output, &Files),
    ) -> Result<ExitCode, Failure> {
        let checked = self.load.require.as_ref().map(|require| require.check(outcome)).unwrap_or_default();
        let mut report = Report::new(prepared.setting, outcome, &prepared.server, checked);
        if let Some(baseline) = baseline {
            let judged = baseline.judge(&document::to_run(&report));
            report.checked.extend(judged);
        }
        let unmet = report.checked.iter().any(|checked| !checked.is_met);
        let document = document::to_document(&report);
        let printed = output.print(&report.to_string(), || document.to_json());
        // A full disk does not keep the other files from being written.
        let written = files.write(&[(redacted(self.url()), document)]);
        printed.and(written)?;
        if let Some(lost) = &outcome.lost {
            return Err(Failure::new(report::describe_lost(lost)));
        }
        if outcome.verdict.is_valid() {
            ReplyCounts::of([outcome]).check()?;
        }
        Ok(match outcome.verdict.is_valid() {
            false => ExitCode::from(INVALID),
            true if unmet || outcome.counts.succeeded == 0 => ExitCode::FAILURE,
            true => ExitCode::SUCCESS,
        })
    }

    fn url(&self) -> &str {
        self.url.as_deref().unwrap_or_default()
    }

    /// Reads the messages, makes one call to report errors at once and in full, and plans the load.
    fn prepare(&self) -> Result<PreparedLoad, Failure> {
        let client = self.client()?.build()?;
        self.common.check_headers(&self.workload.headers, client.protocol())?;
        let encoding = Encoding {
            client: &client,
            options: &self.message,
            common: &self.common,
            seed: self.load.seed,
            calls: self.load.calls,
        };
        let mut methods =
            self.workload.methods(self.target.as_deref(), self.argument.as_deref(), encoding)?;
        let reply = match methods.as_slice() {
            [method] if method.kind == CallKind::Unary => self.try_once(method)?,
            _ => None,
        };
        if let Some(text) = &self.workload.expect {
            self.expect(&client, &mut methods, reply.as_ref(), text)?;
        }
        let reply_bytes = reply.map_or(0, |reply| reply.bytes.len());
        let found = match self.server_pid {
            Some(id) => Ok(Process { id }),
            None if self.workers.count() > 0 => Err("the calls came from workers".to_owned()),
            None => listener::find_listening_process(self.url()),
        };
        // HTTP/1 (also with gRPC-Web and Connect) and some versions of rest_rpc do not multiplex calls on a connection:
        // each caller gets its own.
        let connection_use =
            self.load.connection_use(client.is_multiplexed(), self.workload.streams, self.workers.count())?;
        let plan = self.plan(methods, connection_use, found.as_ref().ok().copied())?;
        let setting = self.setting(&plan, reply_bytes);
        Ok(PreparedLoad { plan, setting, server: found })
    }

    fn plan(
        &self,
        methods: Vec<Method>,
        connection_use: Use,
        server: Option<Process>,
    ) -> Result<Plan, Failure> {
        let (common, url) = (self.common.clone(), self.url().to_owned());
        let client = move || common.client(&url).map_err(|failure| failure.to_string());
        let has_streams = methods.iter().any(|method| method.kind == CallKind::Bidi);
        let streams = self.workload.streams.unwrap_or(connection_use.connections);
        Ok(Plan {
            client: Arc::new(client),
            methods,
            pacing: self.load.pacing(connection_use.callers)?,
            warmup: self.load.warmup,
            length: self.load.length(),
            connection_mode: connection_use.connection_mode,
            connections: connection_use.connections,
            threads: connection_use.threads,
            max_in_flight: if has_streams { streams } else { self.load.max_in_flight },
            // So long the end of the load waits for calls in flight.
            drain_timeout: self.common.timeout().unwrap_or(DEFAULT_TIMEOUT) + Duration::from_secs(1),
            seed: self.load.seed,
            server,
        })
    }

    fn setting(&self, plan: &Plan, reply_bytes: usize) -> Setting {
        let names: Vec<_> = plan.methods.iter().map(|method| method.name.clone()).collect();
        let first = plan.methods.first().and_then(|method| method.messages.first());
        Setting {
            url: redacted(self.url()),
            target: names.join(", "),
            methods: names,
            shape: plan.methods.first().map_or(CallKind::Unary, |method| method.kind).to_string(),
            format: first.map_or("", |body| body.format.as_str()),
            request_bytes: first.map_or(0, |body| body.bytes.len()),
            reply_bytes,
            clients: report::describe_clients(plan, self.workers.count()),
            pacing: plan.pacing.clone(),
            warmup_s: plan.warmup.as_secs_f64(),
            seed: plan.seed,
            command: command_line(env::args()),
        }
    }

    fn client(&self) -> Result<client::Builder, Failure> {
        Ok(self.common.client(self.url())?.connection_mode(self.load.connection_mode))
    }

    /// Makes every call expect the reply of the first one, if that is this JSON.
    fn expect(
        &self,
        client: &Client,
        methods: &mut [Method],
        reply: Option<&Body>,
        text: &str,
    ) -> Result<(), Failure> {
        let target = self.target.as_deref().unwrap_or_default();
        let [method] = methods else { return Err(Failure::new("--expect is for one method")) };
        if method.kind != CallKind::Unary || method.messages.len() > 1 {
            return Err(Failure::new("--expect is for a unary method and one message, which has one reply"));
        }
        let reply = reply.ok_or_else(|| {
            Failure::new("the first call failed, so it has no reply to compare with --expect")
        })?;
        let query_options = self.common.query_options(&self.workload.headers);
        let got = Translator::new(client, target, &self.message, query_options)?.decode_reply(reply)?;
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text);
        let wanted = value(text).map_err(|error| Failure::new(format!("--expect is not JSON: {error}")))?;
        if value(&got).ok().as_ref() != Some(&wanted) {
            return Err(Failure::new(format!(
                "the first call got another reply than --expect: {}",
                got.trim()
            )));
        }
        method.expected = Some(reply.bytes.clone());
        Ok(())
    }

    /// Makes one call. Returns its reply, if there is one.
    fn try_once(&self, method: &Method) -> Result<Option<Body>, Failure> {
        let Some(request) = method.messages.first().cloned() else { return Ok(None) };
        let options = CallOptions { metadata: method.options.metadata.clone(), ..CallOptions::default() };
        let called = if self.load.blocking {
            self.client()?.build_blocking()?.call_raw(&method.target, request, options)
        } else {
            // Discovery, KCP and QUIC need a client with a runtime.
            let client: Client = self.client()?.build()?;
            terminal::block_on(client.call_raw(&method.target, request, options))?
        };
        match called {
            Ok(response) => Ok(Some(response.message)),
            Err(error) => {
                let status = error.status();
                let is_permanent =
                    status.scope() == Scope::Connection || status.code() == Code::Unimplemented;
                if is_permanent { Err(Failure::from_status(status, self.url())) } else { Ok(None) }
            }
        }
    }

    fn failure(&self, error: RunError) -> Failure {
        match error {
            RunError::Connect(status) => Failure::from_status(&status, self.url()),
            other => Failure::new(other.to_string()),
        }
    }
}

/// Exit code of a measurement that says nothing about the server.
const INVALID: u8 = 3;

const HELP: &str = "\
Examples:
  polyrpc bench grpc://127.0.0.1:50051 helloworld.Greeter/SayHello '{\"name\":\"Joe\"}' --rate 20k
  polyrpc bench rpcx://127.0.0.1:8972 Arith/Mul '{\"A\":7,\"B\":8}' --rate 5k --arrivals poisson --require 'p99<5ms,errors<0.1%'
  polyrpc bench grpc://127.0.0.1:50051 users.Users/Get '{\"id\":{{id}}}' --feed users.csv:random --stages 0:1k,30s:50k,2m:50k
  polyrpc bench baidu-std://127.0.0.1:8000 example.EchoService/Echo --size 32 --find-max --slo 'p99<2ms'
  polyrpc bench rpcx+etcd://127.0.0.1:2379/rpcx_test/Arith Arith/Mul '{\"A\":7,\"B\":8}' --callers 64
  polyrpc bench rpcx://127.0.0.1:8972 Arith/Mul '{\"A\":7,\"B\":8}' --rate 5k --json now.json --html now.html --baseline before.json
  polyrpc bench ab rpcx://127.0.0.1:8972 rpcx://127.0.0.1:8973 Arith/Mul '{\"A\":7,\"B\":8}'
  polyrpc bench report before.json now.json --html both.html
  polyrpc bench grpc://bench.internal:50051 helloworld.Greeter/SayHello '{\"name\":\"Joe\"}' --rate 1M --workers a:7000,b:7000 \
--worker-token-file token --worker-cacert ca.pem
  polyrpc bench selftest

With --rate or --stages, calls start at planned times whether or not earlier calls have ended (an open loop). The response \
time counts from the planned time, so that it includes what a stalled server makes others wait; the service time counts from \
the send, and the lag is the time between. If this program itself sent more than 1 % of the calls over 1 ms late, the \
measurement is INVALID.

Otherwise every caller makes its next call when the last has ended (a closed loop). A server that stalls therefore receives \
fewer calls, and the latencies do not include the waiting of callers that would have called meanwhile (coordinated \
omission): read them as what one caller sees at this rate, not as what independent callers would see.

Failed calls are counted by their code, and are neither in the rate nor in the latencies; all.p99 in --require includes them.

Exit codes: 0 measured, 1 a condition is not met, no call succeeded, a reply differs from --expect, the server went away, or the \
options, files and messages do not fit together, 2 an option or its value is wrong, 3 INVALID.";

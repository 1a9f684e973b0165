//! `console`: what a console costs the calls of the server that it observes, and how fast its pages are.
//!
//! The same calls are made in turn of a server that only counts them, of one whose console chooses no call, and of one whose
//! console records a thousand a second; the differences are those of the console. Then of the second one while its process is
//! profiled.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use polyrpc::client;
use polyrpc::codec::{Body, Raw};
use polyrpc::layers::Metrics;
use polyrpc::server::ServerHandle;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Context, Format, Server};
use polyrpc_console::vars::Counter;
use polyrpc_console::{Admin, AdminHandle, Console, Role};
use tokio::runtime::{Builder, Runtime};

use crate::bar::{Bar, Limit};
use crate::load::{SharedLaps, Tally};
use crate::measure;
use crate::report::{self, Machine};
use crate::rounds::{Series, Spread, interleave};

/// Options of the measurement.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds of each server.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Length of each window, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// Maximum cost of a console for a call that it does not record, in microseconds of CPU time.
const UNRECORDED_LIMIT: f64 = 0.02;

/// Minimum share of the calls per second while a thousand are recorded each second.
const RECORDED_LIMIT: f64 = 0.99;

/// Minimum share of the calls per second while the process is profiled at 99 Hz.
const PROFILED_LIMIT: f64 = 0.98;

/// Maximum time of pages, in milliseconds.
const STATUS_LIMIT: f64 = 5.0;
const VARS_LIMIT: f64 = 10.0;

const METHODS: usize = 200;
const VARIABLES: usize = 1000;
const CALLERS: usize = 64;
const PAYLOAD: usize = 32;

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let machine = Machine::here();
    let command: Vec<_> = std::env::args().collect();
    let method = format!(
        "{CALLERS} callers of an rpcx echo of {PAYLOAD} bytes on one connection, in one thread with the server, {} windows of {} s \
         each; pages of {METHODS} methods and {VARIABLES} variables",
        options.rounds, options.seconds
    );
    report::print_conditions(&machine, &command, &method);
    let mut bars = call_bars(options)?;
    bars.extend(page_bars()?);
    println!();
    bars.iter().for_each(|bar| println!("{bar}"));
    Ok(if bars.iter().all(Bar::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The server that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It counts its calls.
    Counted,
    /// A console observes it, and records none of them.
    Observed,
    /// A console records a thousand a second.
    Recorded,
    /// As `Observed`, and the process is profiled at 99 Hz.
    Profiled,
}

fn call_bars(options: &Options) -> io::Result<Vec<Bar>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let counted = serve(&runtime, 1)?;
    let observed = serve(&runtime, 1)?;
    let console = Console::new();
    console.observe(&observed);
    let admin = admin(&console)?;
    let client = |server: &ServerHandle| Client::new(&format!("rpcx://{}", server.address())).map_err(failed);
    let (bare, seen) = (client(&counted)?, client(&observed)?);
    let window = Duration::from_secs_f64(options.seconds.clamp(0.01, 3600.0));
    let kinds = [Kind::Counted, Kind::Observed, Kind::Recorded, Kind::Profiled];
    let measured = interleave(options.rounds.max(1), &kinds, |kind| {
        let (client, samples) = match kind {
            Kind::Counted => (&bare, 0),
            Kind::Observed | Kind::Profiled => (&seen, 0),
            Kind::Recorded => (&seen, 1000),
        };
        get(&admin, &format!("/flags/rpcz_samples_per_second?setvalue={samples}"))?;
        match kind {
            Kind::Profiled => profiled(&admin, window, || window_of(&runtime, client, window)),
            _ => window_of(&runtime, client, window),
        }
    });
    for series in &measured {
        if let Some(Spread { median, min, max }) = series.spread(|window| window.cpu_us) {
            println!("{:<9?} {median:.3} µs of CPU a call ({min:.3} to {max:.3})", series.subject);
        }
    }
    let [counted, observed, recorded, profiled] = &measured[..] else { return Ok(Vec::new()) };
    // Within each round, since the machine varies.
    let pairs = observed.rounds.iter().flatten().zip(counted.rounds.iter().flatten());
    let more = Spread::of(pairs.map(|(observed, counted)| observed.cpu_us - counted.cpu_us));
    let rate = recorded.ratio(counted, |window| window.tally.calls as f64);
    let while_profiled = profiled.ratio(observed, |window| window.tally.calls as f64);
    if let Some(Spread { median, min, max }) = while_profiled {
        println!("{median:.3} of the calls while profiled ({min:.3} to {max:.3})");
    }
    let is_clean = |series: &Series<Kind, Window>| {
        series.rounds.iter().all(|round| round.as_ref().is_ok_and(|window| window.tally.errors == 0))
    };
    let clean = measured.iter().all(is_clean);
    Ok(vec![
        Bar {
            name: "console_unrecorded_more_cpu".to_owned(),
            value: more.map(|more| more.median),
            limit: Limit::CpuAtMost(UNRECORDED_LIMIT),
            clean,
        },
        Bar {
            name: "console_recorded_rate".to_owned(),
            value: rate.map(|rate| rate.median),
            limit: Limit::RatioAtLeast(RECORDED_LIMIT),
            clean,
        },
        Bar {
            name: "console_profiled_rate".to_owned(),
            value: while_profiled.map(|rate| rate.median),
            limit: Limit::RatioAtLeast(PROFILED_LIMIT),
            clean,
        },
    ])
}

/// Measures a window within a profile. What comes before and after the samples, to prepare and to resolve them, is not part of
/// the window.
fn profiled(
    admin: &AdminHandle,
    window: Duration,
    measure: impl FnOnce() -> io::Result<Window>,
) -> io::Result<Window> {
    let seconds = window.as_secs() + 3;
    std::thread::scope(|scope| {
        let profile = scope.spawn(|| get(admin, &format!("/hotspots/cpu?seconds={seconds}")));
        // Until its samples are taken.
        std::thread::sleep(PREPARATION);
        let measured = measure();
        profile.join().map_err(|_| io::Error::other("the profile was not made"))??;
        measured
    })
}

/// Time until a profile samples.
const PREPARATION: Duration = Duration::from_secs(1);

/// A server whose services have this many methods.
fn serve(runtime: &Runtime, methods: usize) -> io::Result<ServerHandle> {
    let mut service = ServiceBuilder::new("Echo");
    for method in 0..methods {
        let name = if method == 0 { "Raw".to_owned() } else { format!("Raw{method}") };
        let echo = |cx: Context, body: Bytes| std::future::ready((cx, Ok(body)));
        service = service.method::<Raw, Bytes, Bytes, _, _>(&name, echo);
    }
    let server = Server::new().service(service).count_calls(&Metrics::new());
    runtime.block_on(async { Ok(server.bind("127.0.0.1:0").await?.start()) })
}

fn admin(console: &Console) -> io::Result<AdminHandle> {
    Admin::on("127.0.0.1:0").token(Role::Write, TOKEN).writable().start(console)
}

const TOKEN: &str = "a-token-of-the-bench";

/// Result of a window.
#[derive(Debug)]
struct Window {
    cpu_us: f64,
    tally: Tally,
}

fn window_of(runtime: &Runtime, client: &Client, window: Duration) -> io::Result<Window> {
    // One-time work is not part of the cost of a call, nor is the time until the console has found its rate.
    runtime.block_on(callers(client, &SharedLaps::start(Duration::from_millis(200))))?;
    let laps = SharedLaps::start(window);
    let before = measure::cpu_time();
    runtime.block_on(callers(client, &laps))?;
    let spent = measure::cpu_time() - before;
    let tally = laps.finish();
    Ok(Window { cpu_us: spent.as_secs_f64() * 1e6 / tally.calls as f64, tally })
}

async fn callers(client: &Client, laps: &SharedLaps) -> io::Result<()> {
    let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(call(client.clone(), laps.clone()))).collect();
    for caller in callers {
        caller.await.map_err(io::Error::other)?.map_err(failed)?;
    }
    Ok(())
}

/// Calls until the window closes.
async fn call(client: Client, laps: SharedLaps) -> polyrpc::Result<()> {
    let body = Body::new(Format::Raw, Bytes::from_static(&[b'A'; PAYLOAD]));
    let mut began = laps.started();
    while laps.open_at(began) {
        let reply = client.call_raw("Echo/Raw", body.clone(), client::CallOptions::default()).await?;
        began = laps.note(began, reply.message.bytes.len() == PAYLOAD);
    }
    Ok(())
}

/// The pages of a server with many methods.
fn page_bars() -> io::Result<Vec<Bar>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let server = serve(&runtime, METHODS)?;
    let client = Client::new(&format!("rpcx://{}", server.address())).map_err(failed)?;
    runtime
        .block_on(async {
            let body = Body::new(Format::Raw, Bytes::from_static(b"A"));
            for method in 1..METHODS {
                let target = format!("Echo/Raw{method}");
                client.call_raw(&target, body.clone(), client::CallOptions::default()).await?;
            }
            Ok::<_, polyrpc::Failure>(())
        })
        .map_err(failed)?;
    let variables: Vec<_> = (0..VARIABLES).map(|n| Counter::new(&format!("bench_variable_{n}"))).collect();
    variables.iter().for_each(|variable| variable.add(1));
    let console = Console::new();
    console.observe(&server);
    let admin = admin(&console)?;
    // The pages show series.
    std::thread::sleep(Duration::from_secs(2));
    let status = page_time(&admin, "/status")?;
    let vars = page_time(&admin, "/vars/bench_variable_*")?;
    let bar =
        |name: &str, value, limit| Bar { name: name.to_owned(), value: Some(value), limit, clean: true };
    Ok(vec![
        bar("console_status_page", status, Limit::MillisAtMost(STATUS_LIMIT)),
        bar("console_vars_page", vars, Limit::MillisAtMost(VARS_LIMIT)),
    ])
}

/// Returns the median time of a page, in milliseconds.
fn page_time(admin: &AdminHandle, target: &str) -> io::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..41 {
        let began = Instant::now();
        get(admin, target)?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Spread::of(times.into_iter()).map(|spread| spread.median).ok_or_else(|| io::Error::other("no page"))
}

fn get(admin: &AdminHandle, target: &str) -> io::Result<String> {
    let address = admin.address().to_string();
    let mut stream = TcpStream::connect(&address)?;
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 200 ") {
        true => Ok(answer),
        false => Err(io::Error::other(answer)),
    }
}

fn failed(error: impl Into<polyrpc::Error>) -> io::Error {
    io::Error::other(error.into().into_status())
}

//! The times of pages.

use std::io;
use std::time::{Duration, Instant};

use polyrpc::server::ServerHandle;
use polyrpc_console::vars::Counter;
use polyrpc_console::{AdminHandle, Console};
use tokio::runtime::{Builder, Runtime};

use super::{MANY_METHODS, METHODS, VARIABLES, admin, bar, browse, call_each, client, detach, serve};
use crate::bar::{Bar, Limit};
use crate::exchange::Protocol;
use crate::load::PAYLOAD;
use crate::measure;
use crate::process::{Child, Ready};
use crate::rounds::Spread;
use crate::run::REPORT_TIMEOUT;
use crate::subject::{ClientKind, ClientOptions};

/// Maximum time of pages, in milliseconds.
const STATUS_LIMIT: f64 = 5.0;
const VARS_LIMIT: f64 = 10.0;
const LARGEST_LIMIT: f64 = 50.0;

/// Connections of the server with the largest pages.
const CONNECTIONS: usize = 10_000;

/// Pages that grow with methods, variables or connections.
const LARGEST: [&str; 11] = [
    "/",
    "/status",
    "/vars",
    "/metrics",
    "/connections",
    "/connections?sort=remote&page=5",
    "/ids",
    "/tasks",
    "/list",
    "/protobufs",
    "/try",
];

/// Times `/status` with many methods, `/vars` with many variables, and all pages with thousands of methods and connections.
pub(super) fn bars() -> io::Result<Vec<Bar>> {
    // Before a server is bound, which grants one peer half of its connections, and closes silent ones near that limit.
    measure::allow_open_files(CONNECTIONS as u64 * 5 / 2);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = serve(&runtime, METHODS)?;
    call_each(&runtime, &client(&server)?, METHODS)?;
    let variables: Vec<_> = (0..VARIABLES).map(|n| Counter::new(&format!("bench_variable_{n}"))).collect();
    variables.iter().for_each(|variable| variable.add(1));
    let console = Console::new();
    console.observe(&server);
    let admin = admin(&console)?;
    // The pages show series.
    std::thread::sleep(Duration::from_secs(2));
    let status = page_time(&admin, "/status")?;
    let vars = page_time(&admin, "/vars/bench_variable_*")?;
    detach(console, admin)?;
    Ok(vec![
        bar("console_status_page", status, Limit::MillisAtMost(STATUS_LIMIT)),
        bar("console_vars_page", vars, Limit::MillisAtMost(VARS_LIMIT)),
        bar("console_largest_page", largest_page_time(&runtime)?, Limit::MillisAtMost(LARGEST_LIMIT)),
    ])
}

/// Returns the time of the slowest page of a server with thousands of methods, each of which was called, and of connections.
fn largest_page_time(runtime: &Runtime) -> io::Result<f64> {
    let server = serve(runtime, MANY_METHODS)?;
    call_each(runtime, &client(&server)?, MANY_METHODS)?;
    let console = Console::new();
    console.observe(&server);
    let admin = admin(&console)?;
    let holder = hold_connections(&server)?;
    std::thread::sleep(Duration::from_secs(2));
    let mut slowest = 0.0;
    for target in LARGEST {
        let time = page_time(&admin, target)?;
        println!("{target} {time:.1} ms");
        slowest = f64::max(slowest, time);
    }
    drop(holder);
    detach(console, admin)?;
    Ok(slowest)
}

/// Opens connections from another process, since one may not have the files of both ends; they are closed when it is dropped.
fn hold_connections(server: &ServerHandle) -> io::Result<Child> {
    let address = server.address().to_string();
    let options = ClientOptions {
        kind: ClientKind::Silent,
        connect: address.parse().map_err(io::Error::other)?,
        protocol: Protocol::Rpcx,
        floor_frames: false,
        payload: PAYLOAD,
        connections: CONNECTIONS,
        in_flight: 0,
        warm_up: 0,
        window: 0,
        core: None,
    };
    let client = Child::start(&options.to_arguments())?;
    let Ready {} = client.read_report(REPORT_TIMEOUT)?;
    let end = Instant::now() + REPORT_TIMEOUT;
    while server.connection_count() < CONNECTIONS {
        if Instant::now() > end {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the server does not accept the connections",
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(client)
}

/// Returns the median time of a page as a browser gets it, in milliseconds.
fn page_time(admin: &AdminHandle, target: &str) -> io::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..41 {
        let began = Instant::now();
        browse(admin, target)?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Spread::from_figures(times.into_iter())
        .map(|spread| spread.median)
        .ok_or_else(|| io::Error::other("no page"))
}

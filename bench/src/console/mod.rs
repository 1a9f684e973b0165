//! `console`: what a console costs the calls of the server that it observes, the memory that it takes, and how fast its
//! pages are.
//!
//! [`memory`] comes first, while the process is small. [`calls`] makes the same calls in turn of a server without a
//! console, of one whose console chooses no call, of one whose console records a thousand a second, and of the second
//! one while its process is profiled; the differences are those of the console. [`pages`] times pages as a browser gets
//! them, with many methods, variables and connections, and [`browser`] loads them in Chromium.

mod browser;
mod calls;
mod memory;
mod pages;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use polyrpc::client::CallOptions;
use polyrpc::codec::{Body, Raw};
use polyrpc::layers::Metrics;
use polyrpc::server::{Limits, ServerHandle};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Context, Format, Server, Status};
use polyrpc_console::{Admin, AdminHandle, Console, Role};
use tokio::runtime::Runtime;

use crate::bar::{Bar, Limit};
use crate::load::{CALLERS, PAYLOAD, to_io_error};
use crate::report::{self, Machine};
use crate::run::parse_seconds;

/// Options of the measurement.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds of each server.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Length of each window, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Measure these parts only: memory, calls, pages, browser; may be repeated.
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Memory,
    Calls,
    Pages,
    Browser,
}

const METHODS: usize = 200;
const VARIABLES: usize = 1000;

/// Maximum number of methods of a server whose pages are timed.
const MANY_METHODS: usize = 5_000;

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let machine = Machine::current();
    let command: Vec<_> = std::env::args().collect();
    let method = format!(
        "{CALLERS} callers of an rpcx echo of {PAYLOAD} bytes on one connection, in one thread with the server, {} windows of {} s \
         each; memory and pages of {METHODS} methods and {VARIABLES} variables, and pages of {MANY_METHODS} methods",
        options.rounds, options.seconds
    );
    report::print_conditions(&machine, &command, &method);
    let is_wanted = |part| options.only.is_empty() || options.only.contains(&part);
    let mut bars = Vec::new();
    if is_wanted(Part::Memory) {
        bars.extend(memory::bars()?);
    }
    if is_wanted(Part::Calls) {
        bars.extend(calls::bars(options)?);
    }
    if is_wanted(Part::Pages) {
        bars.extend(pages::bars()?);
    }
    if is_wanted(Part::Browser) {
        bars.extend(browser::bars()?);
    }
    println!();
    bars.iter().for_each(|bar| println!("{bar}"));
    Ok(if bars.iter().all(Bar::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A figure that no errors spoil.
fn bar(name: &str, value: f64, limit: Limit) -> Bar {
    Bar { name: name.to_owned(), value: Some(value), limit, clean: true }
}

/// A server whose services have this many methods, and one more that fails.
fn serve(runtime: &Runtime, methods: usize) -> io::Result<ServerHandle> {
    let mut service = ServiceBuilder::new("Echo");
    for method in 0..methods {
        let name = if method == 0 { "Raw".to_owned() } else { format!("Raw{method}") };
        let echo = |cx: Context, body: Bytes| std::future::ready((cx, Ok(body)));
        service = service.method::<Raw, Bytes, Bytes, _, _>(&name, echo);
    }
    let fail = |cx: Context, _: Bytes| {
        std::future::ready((cx, Err::<Bytes, _>(Status::not_found("nothing").into())))
    };
    let service = service.method::<Raw, Bytes, Bytes, _, _>("Fail", fail);
    // For the connections that are held while a page is timed.
    let (many, patient) = (20_000, Duration::from_secs(3600));
    let limits = Limits {
        connections: many,
        connections_per_peer: many,
        first_byte_timeout: patient,
        idle_timeout: Some(patient),
        ..Limits::default()
    };
    let metrics = Metrics::with_max_series(2 * MANY_METHODS);
    let server = Server::new().limits(limits).service(service).count_calls(&metrics);
    runtime.block_on(async { Ok(server.bind("127.0.0.1:0").await?.start()) })
}

/// Calls each method of a server once.
fn call_each(runtime: &Runtime, client: &Client, methods: usize) -> io::Result<()> {
    let body = Body::new(Format::Raw, Bytes::from_static(b"A"));
    runtime
        .block_on(async {
            for method in 1..methods {
                let target = format!("Echo/Raw{method}");
                client.call_raw(&target, body.clone(), CallOptions::default()).await?;
            }
            Ok::<_, polyrpc::Failure>(())
        })
        .map_err(to_io_error)
}

fn client(server: &ServerHandle) -> io::Result<Client> {
    Client::new(&format!("rpcx://{}", server.address())).map_err(to_io_error)
}

fn admin(console: &Console) -> io::Result<AdminHandle> {
    Admin::on("127.0.0.1:0").token(Role::Write, TOKEN).anonymous(Role::Call).writable().start(console)
}

const TOKEN: &str = "a-token-of-the-bench";

/// Requests a page of an admin listener as curl does, with the role to change settings.
fn get(admin: &AdminHandle, target: &str) -> io::Result<String> {
    request_page(admin, target, &format!("Authorization: Bearer {TOKEN}\r\n"))
}

/// Requests a page of an admin listener as a browser does, for a user that may read.
fn browse(admin: &AdminHandle, target: &str) -> io::Result<String> {
    request_page(admin, target, "User-Agent: Mozilla/5.0\r\n")
}

fn request_page(admin: &AdminHandle, target: &str, fields: &str) -> io::Result<String> {
    let address = admin.address().to_string();
    let mut stream = TcpStream::connect(&address)?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 200 ") {
        true => Ok(answer),
        false => Err(io::Error::other(answer)),
    }
}

/// Names of the threads of consoles, profilers and admin listeners. This program and the threads that have no name of
/// their own are `polyrpc-bench`.
const THREADS: [&str; 4] = ["polyrpc-console", "polyrpc-stalls", "polyrpc-admin", "polyrpc-profile"];

/// Returns the names of the threads that consoles of this process have.
fn console_threads() -> io::Result<Vec<String>> {
    let names = std::fs::read_dir("/proc/self/task")?.flatten();
    let names = names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    Ok(names.map(|name| name.trim().to_owned()).filter(|name| THREADS.contains(&name.as_str())).collect())
}

/// Ends a console and its listener, and waits until nothing of them runs.
fn detach(console: Console, admin: AdminHandle) -> io::Result<()> {
    drop((admin, console));
    let end = Instant::now() + Duration::from_secs(5);
    while !console_threads()?.is_empty() {
        if Instant::now() > end {
            return Err(io::Error::other(format!("still there: {:?}", console_threads()?)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

//! The echo of the gRPC suite on tonic: `tonic-server --listen=ADDRESS --heavy=ADDITIONS --threads=COUNT`.
//!
//! It follows `bench/src/process.rs`: one line once it listens, one line of resource usage per received line.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::{self, Write};
use std::num::NonZeroUsize;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

mod example {
    tonic::include_proto!("example");
}
mod helloworld {
    tonic::include_proto!("helloworld");
}
mod pb {
    tonic::include_proto!("pb");
}

use example::echo_service_server::{EchoService, EchoServiceServer};
use example::{EchoRequest, EchoResponse};
use helloworld::greeter_server::{Greeter, GreeterServer};
use helloworld::{HelloReply, HelloRequest};
use pb::BenchmarkMessage;
use pb::hello_server::{Hello, HelloServer};

/// PolyRPC's server uses it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Services {
    heavy: u64,
}

#[tonic::async_trait]
impl EchoService for Services {
    async fn echo(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        Ok(Response::new(EchoResponse { message: request.into_inner().message }))
    }
}

#[tonic::async_trait]
impl Hello for Services {
    async fn say(&self, request: Request<BenchmarkMessage>) -> Result<Response<BenchmarkMessage>, Status> {
        let mut message = request.into_inner();
        message.field1 = "OK".into();
        message.field2 = 100;
        Ok(Response::new(message))
    }
}

#[tonic::async_trait]
impl Greeter for Services {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        if self.heavy > 0 {
            let heavy = self.heavy;
            // Blocking work belongs on another thread, as tokio's documentation says.
            let adding = tokio::task::spawn_blocking(move || add_up(heavy));
            adding.await.map_err(|error| Status::internal(error.to_string()))?;
        }
        let name = request.into_inner().name;
        Ok(Response::new(HelloReply { message: format!("Hello {name}") }))
    }
}

fn add_up(count: u64) -> u64 {
    let mut sum = 0u64;
    for n in 0..count {
        sum = black_box(sum.wrapping_add(n));
    }
    sum
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    allow_open_files();
    options.runtime()?.block_on(serve(options))
}

#[derive(Debug)]
struct Options {
    listen: String,
    heavy: u64,
    /// tokio's default: one per core.
    threads: Option<NonZeroUsize>,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self { listen: "127.0.0.1:0".into(), heavy: 0, threads: None };
        for argument in arguments {
            match argument.split_once('=') {
                Some(("--listen", address)) => options.listen = address.into(),
                Some(("--heavy", count)) => options.heavy = count.parse()?,
                Some(("--threads", count)) => options.threads = Some(count.parse()?),
                _ => return Err(format!("unknown argument {argument}").into()),
            }
        }
        Ok(options)
    }

    fn runtime(&self) -> io::Result<Runtime> {
        let Some(threads) = self.threads.map(NonZeroUsize::get) else {
            return Builder::new_multi_thread().enable_all().build();
        };
        let mut builder = match threads {
            // A call is cheaper than on a multi-thread runtime with one thread: README.md.
            1 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        builder.worker_threads(threads).enable_all().build()
    }
}

async fn serve(options: Options) -> Result<(), Box<dyn Error>> {
    let heavy = options.heavy;
    let listener = TcpListener::bind(options.listen).await?;
    println!("{{\"address\":\"{}\"}}", listener.local_addr()?);
    std::thread::spawn(|| {
        for line in io::stdin().lines() {
            if line.is_err() || print_resource_usage().is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    Server::builder()
        .add_service(EchoServiceServer::new(Services { heavy }))
        .add_service(GreeterServer::new(Services { heavy }))
        .add_service(HelloServer::new(Services { heavy }))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
        .await?;
    Ok(())
}

/// As many as allowed: the suite opens 10,000 connections. If this fails, the first one over the limit reports it.
fn allow_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn print_resource_usage() -> io::Result<()> {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_ns = spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64;
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    let resident = rollup.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix("kB"));
    let resident_kib = resident.unwrap_or("0").trim().to_owned();
    let open_files = fs::read_dir("/proc/self/fd")?.count();
    let mut out = io::stdout().lock();
    writeln!(out, "{{\"cpu_ns\":{cpu_ns},\"resident_kib\":{resident_kib},\"open_files\":{open_files}}}")?;
    out.flush()
}

//! PolyRPC's server: an echo, the greeter of the seed, and the service of the many connections.

use std::hint::black_box;
use std::io;
use std::net::SocketAddr;

use clap::Args;
use polyrpc::codec::Protobuf;
use polyrpc::server::Limits;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Cores, Result, Server};

use crate::process;
use crate::proto::example::{EchoRequest, EchoResponse, EchoService, EchoServiceServer};
use crate::proto::helloworld::{HelloReply, HelloRequest};
use crate::proto::pb::{BenchmarkMessage, Hello, HelloServer};

/// Arguments of the server.
#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// Address to listen on; port 0 selects a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Number of additions of the greeter in each call.
    #[arg(long, default_value_t = 0)]
    heavy: u64,
    /// Number of serving threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

/// Main function of the server's process.
pub(crate) fn serve(options: &ServerOptions) -> io::Result<()> {
    process::prepare(None)?;
    // Its blocking method computes, and its light ones must stay fast meanwhile.
    let cores = Cores::builder().threads(options.threads).idle_priority_blocking().start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // The client opens up to 10,000 connections from one address: more than half of what some machines allow.
    let limits = Limits { connections_per_peer: 12_000, ..Limits::default() };
    let server = Server::new()
        .executor(cores)
        .limits(limits)
        .service(EchoServiceServer::new(Services))
        .service(greeter(options.heavy))
        .service(HelloServer::new(Services));
    let bound = runtime.block_on(server.bind(options.listen.to_string()))?;
    let address = bound.address().to_string().parse().map_err(io::Error::other)?;
    runtime.spawn(bound.run());
    process::report_usage(address)
}

struct Services;

impl EchoService for Services {
    async fn echo(&self, _: &mut Context, request: EchoRequest) -> Result<EchoResponse> {
        Ok(EchoResponse { message: request.message, ..Default::default() })
    }
}

impl Hello for Services {
    async fn say(&self, _: &mut Context, mut message: BenchmarkMessage) -> Result<BenchmarkMessage> {
        message.field1 = "OK".into();
        message.field2 = 100;
        Ok(message)
    }
}

/// The heavy method of the greeter runs as a blocking one.
fn greeter(heavy: u64) -> ServiceBuilder {
    let service = ServiceBuilder::new("helloworld.Greeter");
    let greet = move |cx: Context, request: HelloRequest| async move {
        add_up(heavy);
        (cx, Ok(HelloReply { message: format!("Hello {}", request.name), ..Default::default() }))
    };
    match heavy {
        0 => service.method::<Protobuf, HelloRequest, HelloReply, _, _>("SayHello", greet),
        _ => service.blocking_method::<Protobuf, HelloRequest, HelloReply, _, _>("SayHello", greet),
    }
}

/// The loop of the seed: this many additions, none of which the compiler may omit. Not inlined, so that the loop
/// alone and the handler's are the same code at the same address: alignment matters by some percent.
#[inline(never)]
pub(super) fn add_up(count: u64) -> u64 {
    let mut sum = 0u64;
    for n in 0..count {
        sum = black_box(sum.wrapping_add(n));
    }
    sum
}

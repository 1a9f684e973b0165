//! The server of suites: the services of `serve`, with a greeter that has something to do.

use std::hint::black_box;
use std::io;
use std::process;
use std::thread;

use clap::Args;
use polyrpc::codec::Protobuf;
use polyrpc::rest_rpc::{UnknownVersion, Version};
use polyrpc::server::{Limits, Listen};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Server};

use crate::bench::open_files;
use crate::failure::Failure;
use crate::proto::helloworld::{HelloReply, HelloRequest};
use crate::{services, terminal};

#[derive(Debug, Args)]
pub(super) struct Options {
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// Additions of each greeting
    #[arg(long, default_value = "0")]
    heavy: u64,
    /// Protocol of the calls, which decides whether test.BenchmarkService has protobuf or FlatBuffers
    #[arg(long, default_value = "")]
    protocol: String,
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("start a runtime", &error))?;
    end_with_standard_input();
    runtime.block_on(async {
        let stop = polyrpc::signal::shutdown();
        let server = server(options).bind(options.listener()?).await;
        let server =
            server.map_err(|error| Failure::system(format!("listen on {}", options.listen), &error))?;
        let running = server.start();
        terminal::print(&format!("listening {}", running.address()))?;
        stop.await;
        Ok(())
    })
}

impl Options {
    /// Old versions of rest_rpc cannot be detected from the first bytes of a connection.
    fn listener(&self) -> Result<Listen, Failure> {
        let listen = Listen::on(self.listen.clone());
        match self.protocol.strip_prefix("rest-rpc?version=") {
            None => Ok(listen),
            Some(version) => {
                let version: Version = version
                    .parse()
                    .map_err(|error: UnknownVersion| Failure::new(format!("rest_rpc {version}: {error}")))?;
                Ok(listen.rest_rpc(version))
            }
        }
    }
}

fn server(options: &Options) -> Server {
    let server = services::shared_server().service(greeter(options.heavy)).limits(limits());
    match options.protocol.starts_with("fb-rpc") {
        true => server.service(services::flatbuffers_benchmark()),
        false => server.service(services::fields::service()),
    }
}

/// All connections come from one address, which may therefore have all that the process may open.
fn limits() -> Limits {
    let defaults = Limits::default();
    let connections = defaults.connections.min(open_files::max_connections());
    Limits { connections, connections_per_peer: connections, ..defaults }
}

/// A handler that computes for milliseconds runs on a blocking thread, so that others are answered meanwhile.
fn greeter(heavy: u64) -> ServiceBuilder {
    let service = ServiceBuilder::new("helloworld.Greeter");
    let greet = move |cx: Context, request: HelloRequest| async move {
        add_up(heavy);
        (cx, Ok(HelloReply { message: format!("Hello {}", request.name), ..HelloReply::default() }))
    };
    match heavy {
        0 => service.method::<Protobuf, HelloRequest, HelloReply, _, _>("SayHello", greet),
        _ => service.blocking_method::<Protobuf, HelloRequest, HelloReply, _, _>("SayHello", greet),
    }
}

/// The loop of the document: this many additions, none of which a compiler may omit.
fn add_up(count: u64) -> u64 {
    let mut sum = 0_u64;
    for n in 0..count {
        sum = black_box(sum.wrapping_add(n));
    }
    sum
}

/// If the process that started this server is killed, the server's standard input is closed.
pub(super) fn end_with_standard_input() {
    thread::spawn(|| {
        // An error ends it, too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        process::exit(0);
    });
}

//! The service with both kinds of messages, and its callers. Every call builds a new message, as the proposal's
//! program does.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use polyrpc::{Client, Cores, Server};
use tokio::runtime::{Builder, Runtime};

use super::Messages;
use crate::load::{Load, SharedLatencyRecorder, Tally, to_io_error};
use crate::messages::{fbs, pb};
use crate::process;

/// Arguments of a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerOptions {
    /// Kind of received messages.
    #[arg(long)]
    pub(crate) messages: Messages,
    /// Address to listen on; port 0 selects a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The core to run on.
    #[arg(long)]
    pub(crate) core: Option<usize>,
}

impl ServerOptions {
    /// The equivalent command line.
    pub(super) fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "fb-server".to_owned(),
            format!("--messages={}", self.messages.as_str()),
            format!("--listen={}", self.listen),
        ];
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }
}

/// Main function of a server's process: one thread serves.
pub(crate) fn serve(options: &ServerOptions) -> io::Result<()> {
    process::prepare(options.core)?;
    let server = match options.messages {
        Messages::Protobuf => Server::new().service(pb::BenchmarkServiceServer::new(pb::Echo)),
        Messages::Flatbuffers => Server::new().service(fbs::BenchmarkServiceServer::new(fbs::Echo)),
    };
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let bound = runtime.block_on(server.executor(Cores::start(1)?).bind(options.listen.to_string()))?;
    let address = bound.address().to_string().parse().map_err(io::Error::other)?;
    runtime.spawn(bound.run());
    process::report_usage(address)
}

/// Arguments of a client.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientOptions {
    /// Kind of sent messages.
    #[arg(long)]
    pub(crate) messages: Messages,
    /// The server to call.
    #[arg(long)]
    pub(crate) connect: SocketAddr,
    /// Number of callers that share the connection.
    #[arg(long, default_value_t = 1)]
    pub(crate) callers: usize,
    /// Length of the string in bytes.
    #[arg(long)]
    pub(crate) size: usize,
    /// Warm-up before the window, in milliseconds.
    #[arg(long, default_value_t = 300)]
    pub(crate) warm_up: u64,
    /// Length of the window, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    pub(crate) window: u64,
    /// The core to run on.
    #[arg(long)]
    pub(crate) core: Option<usize>,
}

impl ClientOptions {
    /// The equivalent command line.
    pub(super) fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "fb-client".to_owned(),
            format!("--messages={}", self.messages.as_str()),
            format!("--connect={}", self.connect),
            format!("--callers={}", self.callers),
            format!("--size={}", self.size),
            format!("--warm-up={}", self.warm_up),
            format!("--window={}", self.window),
        ];
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }
}

/// Main function of a client's process.
pub(crate) fn call(options: &ClientOptions) -> io::Result<()> {
    process::prepare(options.core)?;
    let millis = Duration::from_millis;
    process::run_load(&mut Callers::connect(options)?, millis(options.warm_up), millis(options.window))
}

/// Callers in closed loops that share one connection, on its thread.
struct Callers {
    runtime: Runtime,
    client: Client,
    messages: Messages,
    callers: usize,
    size: usize,
}

impl Callers {
    fn connect(options: &ClientOptions) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let scheme = match options.messages {
            Messages::Protobuf => "baidu-std",
            Messages::Flatbuffers => "fb-rpc",
        };
        let client = Client::new(&format!("{scheme}://{}", options.connect)).map_err(to_io_error)?;
        let ClientOptions { messages, callers, size, .. } = *options;
        Ok(Self { runtime, client, messages, callers, size })
    }
}

impl Load for Callers {
    fn run(&mut self, window: Duration) -> io::Result<Tally> {
        let latencies = SharedLatencyRecorder::start(window);
        self.runtime.block_on(async {
            let callers: Vec<_> = (0..self.callers)
                .map(|_| {
                    let (client, latencies) = (self.client.clone(), latencies.clone());
                    match self.messages {
                        Messages::Protobuf => tokio::spawn(call_protobuf(client, self.size, latencies)),
                        Messages::Flatbuffers => tokio::spawn(call_flatbuffers(client, self.size, latencies)),
                    }
                })
                .collect();
            for caller in callers {
                caller.await.map_err(io::Error::other)?.map_err(to_io_error)?;
            }
            Ok::<_, io::Error>(())
        })?;
        Ok(latencies.finish())
    }
}

async fn call_protobuf(client: Client, size: usize, latencies: SharedLatencyRecorder) -> polyrpc::Result<()> {
    let (stub, text) = (pb::BenchmarkServiceClient::new(client), "A".repeat(size));
    let mut began = latencies.started();
    while latencies.is_open_at(began) {
        let reply = stub.test(pb::request(&text)).await?;
        began = latencies.record_call(began, pb::is_right(&reply, &text));
    }
    Ok(())
}

async fn call_flatbuffers(
    client: Client,
    size: usize,
    latencies: SharedLatencyRecorder,
) -> polyrpc::Result<()> {
    let (stub, text) = (fbs::BenchmarkServiceClient::new(client), "A".repeat(size));
    let mut began = latencies.started();
    while latencies.is_open_at(began) {
        let reply = stub.test(fbs::request(&text)).await?;
        began = latencies.record_call(began, fbs::is_right(&reply, &text));
    }
    Ok(())
}

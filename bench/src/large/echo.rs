//! The service, on one port for both protocols, and its caller.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use polyrpc::blocking::Client;
use polyrpc::{Context, Result, Server};

use super::Protocol;
use crate::load::{Load, SharedLatencyRecorder, Tally, to_io_error};
use crate::process;
use crate::proto::example::{
    EchoRequest, EchoResponse, EchoService, EchoServiceBlockingClient, EchoServiceServer,
};

/// Arguments of the server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerOptions {
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
        let mut arguments = vec!["large-server".to_owned(), format!("--listen={}", self.listen)];
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }
}

/// Main function of the server's process: one thread serves.
pub(crate) fn serve(options: &ServerOptions) -> io::Result<()> {
    process::prepare(options.core)?;
    let server = Server::new().service(EchoServiceServer::new(Echo));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bound = runtime.block_on(server.bind(options.listen.to_string()))?;
    let address = bound.address().to_string().parse().map_err(io::Error::other)?;
    thread::Builder::new().name("polyrpc".into()).spawn(move || runtime.block_on(bound.run()))?;
    process::report_usage(address)
}

#[derive(Debug)]
struct Echo;

impl EchoService for Echo {
    async fn echo(&self, _: &mut Context, request: EchoRequest) -> Result<EchoResponse> {
        Ok(EchoResponse { message: request.message, ..Default::default() })
    }
}

/// Arguments of the client.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientOptions {
    /// Its protocol.
    #[arg(long)]
    pub(crate) protocol: Protocol,
    /// The server to call.
    #[arg(long)]
    pub(crate) connect: SocketAddr,
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
        let protocol = self.protocol.to_possible_value().expect("no protocol is hidden");
        let mut arguments = vec![
            "large-client".to_owned(),
            format!("--protocol={}", protocol.get_name()),
            format!("--connect={}", self.connect),
            format!("--size={}", self.size),
            format!("--warm-up={}", self.warm_up),
            format!("--window={}", self.window),
        ];
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }
}

/// Main function of the client's process.
pub(crate) fn call(options: &ClientOptions) -> io::Result<()> {
    process::prepare(options.core)?;
    let client = Client::new(&format!("{}://{}", options.protocol.as_str(), options.connect));
    let mut caller = Caller {
        stub: EchoServiceBlockingClient::new(client.map_err(to_io_error)?),
        message: "A".repeat(options.size),
    };
    let millis = Duration::from_millis;
    process::run_load(&mut caller, millis(options.warm_up), millis(options.window))
}

/// A caller, on this thread.
struct Caller {
    stub: EchoServiceBlockingClient,
    message: String,
}

impl Load for Caller {
    fn run(&mut self, window: Duration) -> io::Result<Tally> {
        let latencies = SharedLatencyRecorder::start(window);
        let mut began = latencies.started();
        while latencies.is_open_at(began) {
            let request = EchoRequest { message: self.message.clone(), ..Default::default() };
            let response = self.stub.echo(request).map_err(to_io_error)?;
            began = latencies.record_call(began, response.message == self.message);
        }
        Ok(latencies.finish())
    }
}

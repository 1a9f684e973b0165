//! The service in both protocols, and its callers: one thread each, in a closed loop, with its own connection.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clap::Args;
use polyrpc::blocking::Client;
use polyrpc::rest_rpc::Version;
use polyrpc::server::Listen;
use polyrpc::{Context, Result, Server};

use super::BenchProtocol;
use crate::load::{Load, SharedLatencyRecorder, Tally, to_io_error};
use crate::process;
use crate::proto::example::{
    EchoRequest, EchoResponse, EchoService, EchoServiceBlockingClient, EchoServiceServer,
};

/// Arguments of a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerOptions {
    /// Its protocol.
    #[arg(long)]
    pub(crate) spoken: BenchProtocol,
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
            "rest-rpc-server".to_owned(),
            format!("--spoken={}", self.spoken.as_str()),
            format!("--listen={}", self.listen),
        ];
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }
}

/// Main function of a server's process: one thread serves.
pub(crate) fn serve(options: &ServerOptions) -> io::Result<()> {
    process::prepare(options.core)?;
    let server = Server::new()
        .service(EchoServiceServer::new(Echo))
        .function("echo", |message: String| async move { message });
    let listen = Listen::on(options.listen.to_string());
    let listen = match options.spoken {
        BenchProtocol::BaiduStd | BenchProtocol::RestRpc => listen,
        // It has no signature.
        BenchProtocol::RestRpcV0_11 => listen.rest_rpc(Version::V0_11),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bound = runtime.block_on(server.bind(listen))?;
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

/// Arguments of a client.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientOptions {
    /// Its protocol.
    #[arg(long)]
    pub(crate) spoken: BenchProtocol,
    /// The server to call.
    #[arg(long)]
    pub(crate) connect: SocketAddr,
    /// Number of calling threads.
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
            "rest-rpc-client".to_owned(),
            format!("--spoken={}", self.spoken.as_str()),
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

/// Blocking callers on separate threads.
struct Callers {
    clients: Vec<Client>,
    spoken: BenchProtocol,
    message: String,
}

impl Callers {
    fn connect(options: &ClientOptions) -> io::Result<Self> {
        let url = match options.spoken {
            BenchProtocol::BaiduStd => format!("baidu-std://{}", options.connect),
            BenchProtocol::RestRpc => format!("rest-rpc://{}", options.connect),
            BenchProtocol::RestRpcV0_11 => format!("rest-rpc://{}?version=0.11", options.connect),
        };
        let clients = (0..options.callers).map(|_| Client::new(&url)).collect::<polyrpc::client::Result<_>>();
        let message = "A".repeat(options.size);
        Ok(Self { clients: clients.map_err(to_io_error)?, spoken: options.spoken, message })
    }

    fn call(&self, client: &Client, latencies: &SharedLatencyRecorder) -> Result<()> {
        match self.spoken {
            BenchProtocol::BaiduStd => {
                let stub = EchoServiceBlockingClient::new(client.clone());
                repeat(latencies, || Ok(stub.echo(self.request())?.message == self.message))
            }
            BenchProtocol::RestRpc | BenchProtocol::RestRpcV0_11 => {
                repeat(latencies, || Ok(client.call::<String>("echo", &(&self.message,))? == self.message))
            }
        }
    }

    fn request(&self) -> EchoRequest {
        EchoRequest { message: self.message.clone(), ..Default::default() }
    }
}

impl Load for Callers {
    fn run(&mut self, window: Duration) -> io::Result<Tally> {
        let latencies = SharedLatencyRecorder::start(window);
        let this = &*self;
        thread::scope(|scope| {
            let callers: Vec<_> =
                this.clients.iter().map(|client| scope.spawn(|| this.call(client, &latencies))).collect();
            for caller in callers {
                caller.join().map_err(|_| io::Error::other("a caller panicked"))?.map_err(to_io_error)?;
            }
            Ok::<_, io::Error>(())
        })?;
        Ok(latencies.finish())
    }
}

/// Makes sequential calls during the window.
fn repeat(latencies: &SharedLatencyRecorder, call: impl Fn() -> Result<bool>) -> Result<()> {
    let mut began = latencies.started();
    while latencies.is_open_at(began) {
        began = latencies.record_call(began, call()?);
    }
    Ok(())
}

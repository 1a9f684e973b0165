//! PolyRPC's clients: a blocking thread, and callers that share one connection.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc::blocking;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::{Client, Format};
use tokio::runtime::{Builder, Runtime};

use crate::exchange::Protocol;
use crate::load::{LatencyRecorder, Load, SharedLatencyRecorder, Tally, to_io_error};
use crate::proto::example::{EchoRequest, EchoServiceBlockingClient, EchoServiceClient};

/// One call in flight, made by the waiting thread.
pub(super) struct Blocking {
    call: Box<dyn Fn() -> polyrpc::Result<bool>>,
}

impl Blocking {
    pub(super) fn connect(server: SocketAddr, protocol: Protocol, payload: usize) -> io::Result<Self> {
        let client = blocking::Client::new(&url(server, protocol)).map_err(to_io_error)?;
        let call: Box<dyn Fn() -> polyrpc::Result<bool>> = match protocol {
            Protocol::BaiduStd => {
                let (stub, message) = (EchoServiceBlockingClient::new(client), message(payload));
                Box::new(move || Ok(stub.echo(request(&message))?.message == message))
            }
            Protocol::Rpcx => {
                let body = raw(payload);
                Box::new(move || {
                    let reply = client.call_raw("Echo/Raw", body.clone(), CallOptions::default())?;
                    Ok(reply.message.bytes == body.bytes)
                })
            }
        };
        Ok(Self { call })
    }
}

impl Load for Blocking {
    fn run(&mut self, window: Duration) -> io::Result<Tally> {
        let mut latencies = LatencyRecorder::start(window);
        let mut began = latencies.started();
        while latencies.is_open_at(began) {
            let right = (self.call)().map_err(to_io_error)?;
            let ended = Instant::now();
            latencies.record(began, ended, 1);
            latencies.record_errors(u64::from(!right));
            began = ended;
        }
        Ok(latencies.finish())
    }
}

/// Callers in closed loops that share one connection, on its thread.
pub(super) struct Shared {
    runtime: Runtime,
    callers: usize,
    client: Client,
    protocol: Protocol,
    payload: usize,
}

impl Shared {
    pub(super) fn connect(
        server: SocketAddr,
        protocol: Protocol,
        payload: usize,
        callers: usize,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = Client::new(&url(server, protocol)).map_err(to_io_error)?;
        Ok(Self { runtime, callers, client, protocol, payload })
    }
}

impl Load for Shared {
    fn run(&mut self, window: Duration) -> io::Result<Tally> {
        let latencies = SharedLatencyRecorder::start(window);
        self.runtime.block_on(async {
            let callers: Vec<_> = (0..self.callers)
                .map(|_| {
                    let (client, latencies) = (self.client.clone(), latencies.clone());
                    match self.protocol {
                        Protocol::BaiduStd => tokio::spawn(call_typed(client, self.payload, latencies)),
                        Protocol::Rpcx => tokio::spawn(call_raw(client, self.payload, latencies)),
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

async fn call_typed(client: Client, payload: usize, latencies: SharedLatencyRecorder) -> polyrpc::Result<()> {
    let (stub, message) = (EchoServiceClient::new(client), message(payload));
    let mut began = latencies.started();
    while latencies.is_open_at(began) {
        let reply = stub.echo(request(&message)).await?;
        began = latencies.record_call(began, reply.message == message);
    }
    Ok(())
}

async fn call_raw(client: Client, payload: usize, latencies: SharedLatencyRecorder) -> polyrpc::Result<()> {
    let body = raw(payload);
    let mut began = latencies.started();
    while latencies.is_open_at(began) {
        let reply = client.call_raw("Echo/Raw", body.clone(), CallOptions::default()).await?;
        began = latencies.record_call(began, reply.message.bytes == body.bytes);
    }
    Ok(())
}

fn url(server: SocketAddr, protocol: Protocol) -> String {
    match protocol {
        Protocol::BaiduStd => format!("baidu-std://{server}"),
        Protocol::Rpcx => format!("rpcx://{server}"),
    }
}

fn message(payload: usize) -> String {
    "A".repeat(payload)
}

fn request(message: &str) -> EchoRequest {
    EchoRequest { message: message.to_owned(), ..Default::default() }
}

fn raw(payload: usize) -> Body {
    Body::new(Format::Raw, Bytes::from(vec![b'A'; payload]))
}

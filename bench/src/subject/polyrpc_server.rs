//! PolyRPC's server: an echo of a message over baidu_std and of raw bytes over rpcx.

use std::io;
use std::net::SocketAddr;

use polyrpc::codec::Raw;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Cores, Result, Server};

use crate::proto::example::{EchoRequest, EchoResponse, EchoService, EchoServiceServer};

/// Serves on one thread of its own, as the floor's servers with epoll do, until the process ends.
pub(super) fn serve(listen: SocketAddr) -> io::Result<SocketAddr> {
    let cores = Cores::start(1)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let bound = runtime.block_on(server(cores).bind(listen.to_string()))?;
    let address = bound.address().to_string().parse().map_err(io::Error::other)?;
    runtime.spawn(bound.run());
    // The runtime accepts connections for as long as the process lives.
    std::mem::forget(runtime);
    Ok(address)
}

fn server(cores: Cores) -> Server {
    let raw = ServiceBuilder::new("Echo")
        .method::<Raw, bytes::Bytes, bytes::Bytes, _, _>("Raw", |cx: Context, body| async { (cx, Ok(body)) });
    Server::new().on(cores).service(EchoServiceServer::new(Echo)).service(raw)
}

#[derive(Debug)]
struct Echo;

impl EchoService for Echo {
    async fn echo(&self, _: &mut Context, request: EchoRequest) -> Result<EchoResponse> {
        Ok(EchoResponse { message: request.message, ..Default::default() })
    }
}

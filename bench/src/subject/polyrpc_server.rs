//! PolyRPC's server: an echo of a message over baidu_std and of raw bytes over rpcx.

use std::io;
use std::net::SocketAddr;
use std::thread;

use polyrpc::codec::Raw;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Result, Server};

use crate::proto::example::{EchoRequest, EchoResponse, EchoService, EchoServiceServer};

/// Serves on one thread, like the floor's epoll server, until the process ends. It accepts there
/// too: a second thread would compete for its core.
pub(super) fn serve(listen: SocketAddr) -> io::Result<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bound = runtime.block_on(server().bind(listen.to_string()))?;
    let address = bound.address().to_string().parse().map_err(io::Error::other)?;
    thread::Builder::new().name("polyrpc".into()).spawn(move || runtime.block_on(bound.run()))?;
    Ok(address)
}

fn server() -> Server {
    let raw = ServiceBuilder::new("Echo")
        .method::<Raw, bytes::Bytes, bytes::Bytes, _, _>("Raw", |cx: Context, body| async { (cx, Ok(body)) });
    Server::new().service(EchoServiceServer::new(Echo)).service(raw)
}

#[derive(Debug)]
struct Echo;

impl EchoService for Echo {
    async fn echo(&self, _: &mut Context, request: EchoRequest) -> Result<EchoResponse> {
        Ok(EchoResponse { message: request.message, ..Default::default() })
    }
}

//! The services of a server within axum: its routes and layers, gRPC, gRPC-Web and JSON on axum's port.

use axum::Router;
use axum::routing::get;
use polyrpc::server::Listen;
use polyrpc::{Client, Result, Server};
use polyrpc_tower::RpcService;
use tokio::net::TcpListener;

#[polyrpc::service]
trait Greeter {
    async fn greet(&self, name: String) -> Result<String>;
}

struct Polite;

impl Greeter for Polite {
    async fn greet(&self, name: String) -> Result<String> {
        Ok(format!("hello, {name}"))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    // It opens no socket of its own.
    let server = Server::new().service(GreeterServer::new(Polite)).bind(Listen::in_process()).await?.start();

    let router = Router::new()
        .route("/", get(|| async { "a page of axum\n" }))
        .fallback_service(RpcService::new(&server));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(axum::serve(listener, router).into_future());

    for protocol in ["grpc", "http"] {
        let client = Client::new(&format!("{protocol}://{address}"))?;
        println!("{protocol}: {}", GreeterClient::new(client).greet("joe".to_owned()).await?);
    }
    Ok(())
}

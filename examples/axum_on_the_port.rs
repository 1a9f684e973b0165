//! An axum router on the port of a server: web pages next to the services of every protocol.

use axum::Router;
use axum::routing::get;
use polyrpc::{Client, Result, Server};
use polyrpc_tower::Routes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::main]
async fn main() -> Result<()> {
    let router = Router::new().route("/", get(|| async { "a page of axum" }));
    let server = Server::new()
        .function("greet", |name: String| async move { format!("hello, {name}") })
        // Requests that no service and no built-in page answers.
        .http_fallback(Routes::new(router))
        .bind("127.0.0.1:0")
        .await?
        .start();

    let address = server.address().to_string();
    for protocol in ["baidu-std", "rpcx", "http", "rest-rpc"] {
        let client = Client::new(&format!("{protocol}://{address}"))?;
        println!("{protocol}: {}", client.call::<String>("greet", &"joe").await?);
    }
    println!("GET /: {}", page(&address).await?);
    Ok(())
}

/// Fetches a page like a browser.
async fn page(address: &str) -> Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    socket.read_to_string(&mut response).await?;
    Ok(response.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
}

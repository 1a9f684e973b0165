//! Requests for the pages of a server's admin listener.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the lines of the page of connections for those from these ports of this host.
pub(crate) async fn connections_from(address: &str, ports: &[u16]) -> std::io::Result<Vec<String>> {
    let page = timeout(PATIENCE, exchange(address, "/connections")).await??;
    let page = String::from_utf8_lossy(&page);
    let is_from =
        |line: &str, port: &u16| line.split_whitespace().any(|word| word.ends_with(&format!(":{port}")));
    let lines = page.lines().filter(|line| ports.iter().any(|port| is_from(line, port)));
    Ok(lines.map(str::to_owned).collect())
}

/// Requests a page over a new connection, and returns the response.
pub(crate) async fn exchange(address: &str, page: &str) -> std::io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(address).await?;
    let head = format!("GET {page} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    let mut response = Vec::new();
    socket.read_to_end(&mut response).await?;
    Ok(response)
}

//! Pages that describe a running server, with variables and a setting of the program.
//!
//! With an address as its argument it keeps running: `… --bin console 127.0.0.1:8001`, for a browser.

use std::time::Duration;

use polyrpc::layers::Metrics;
use polyrpc::{Client, Server, signal};
use polyrpc_console::settings::Setting;
use polyrpc_console::vars::{Counter, Latency, PerSecond};
use polyrpc_console::{Admin, Console};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let server = Server::new()
        .function("add", |a: i64, b: i64| async move { a + b })
        .count_calls(&Metrics::new())
        .bind("127.0.0.1:0")
        .await?;
    let running = server.start();

    let console = Console::new();
    console.observe(&running);
    let admin = Admin::on(&address).start(&console)?;
    println!("pages: http://{}/", admin.address());

    let orders = Counter::new("orders");
    let _rate = PerSecond::new("orders_per_second", &orders);
    let payment = Latency::new("payment");
    orders.add(1);
    payment.record(Duration::from_millis(3));

    let limit = Setting::define("orders_limit", 100_u64, "Maximum number of orders that are open")
        .validate(|&limit| limit > 0)
        .register();
    println!("there may be {} orders", limit.get());

    for protocol in ["baidu-std", "rpcx", "grpc", "http"] {
        let client = Client::new(&format!("{protocol}://{}", running.address()))?;
        let _: i64 = client.call("add", &(1, 2)).await?;
    }
    for page in ["/status", "/vars/orders;payment_count", "/flags/orders_limit"] {
        println!("\n{page}\n{}", get(&admin.address().to_string(), page).await?);
    }
    if std::env::args().len() > 1 {
        signal::shutdown().await;
    }
    Ok(())
}

/// What curl shows.
async fn get(address: &str, page: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!("GET {page} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
}

//! Plain functions on a server, called over every protocol on one port.

use polyrpc::{Client, Result, Server, Status};

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new()
        .function("echo", |text: String| async move { text })
        .function("add", |a: i64, b: i64| async move { a + b })
        .function("div", div)
        .bind("127.0.0.1:0")
        .await?
        .start();
    let address = server.address();

    for protocol in ["baidu-std", "rpcx", "grpc", "http"] {
        let client = Client::new(&format!("{protocol}://{address}"))?;
        let text: String = client.call("echo", "hello").await?;
        let sum: i64 = client.call("add", &(1, 2)).await?;
        println!("{protocol}: {text}, 1 + 2 = {sum}");
    }

    let client = Client::new(&format!("rpcx://{address}"))?;
    let error = client.call::<i64>("div", &(1, 0)).await.unwrap_err();
    println!("1 / 0: {}", error.message());
    Ok(())
}

/// A function can fail: with a [`Status`], or with any error through `?`.
async fn div(a: i64, b: i64) -> Result<i64> {
    Ok(a.checked_div(b).ok_or_else(|| Status::invalid_argument("division by zero"))?)
}

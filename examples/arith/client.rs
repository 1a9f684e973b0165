//! Calls the service of `arith_server`, or that of any rpcx server with rpcx's example `Arith`.
//!
//!     cargo run -p polyrpc-examples --bin arith_client [URL]

mod arith;

use std::time::Duration;

use polyrpc::client::Request;
use polyrpc::{Client, Result};

use crate::arith::{Args, ArithClient};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "rpcx://127.0.0.1:8972".into());
    let arith = ArithClient::new(Client::new(&url)?);

    let reply = arith.mul(Args { a: 7, b: 8 }).await?;
    println!("7 * 8 = {}", reply.c);

    // A call with metadata and a timeout, whose reply has metadata too.
    let request =
        Request::new(Args { a: 56, b: 8 }).with_timeout(Duration::from_secs(10)).with_metadata("trace", "42");
    let response = arith.div_with(request).await?;
    println!("56 / 8 = {}", response.message.c);

    let error = arith.div(Args { a: 1, b: 0 }).await.unwrap_err();
    println!("1 / 0: {}", error.message());
    Ok(())
}

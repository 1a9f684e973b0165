//! The service of Go's own `net/rpc` example, answered by Rust: Go clients call it unchanged, with
//! `rpc.Dial`, `rpc.DialHTTP` and `jsonrpc.Dial`, all on one port.
//!
//!     cargo run -p polyrpc-examples --bin net_rpc [URL]
//!
//! With a URL, it calls the server there, which may be Go's.

use polyrpc::{Client, Result, Server, Status};
use serde::{Deserialize, Serialize};

/// Go finds fields by these names.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Args {
    a: i64,
    b: i64,
}

#[derive(Serialize, Deserialize)]
struct Quotient {
    #[serde(rename = "Quo", default)]
    quotient: i64,
    #[serde(rename = "Rem", default)]
    remainder: i64,
}

#[polyrpc::service]
trait Arith {
    async fn multiply(&self, args: Args) -> Result<i64>;
    async fn divide(&self, args: Args) -> Result<Quotient>;
}

struct Calculator;

impl Arith for Calculator {
    async fn multiply(&self, args: Args) -> Result<i64> {
        Ok(args.a.wrapping_mul(args.b))
    }

    async fn divide(&self, args: Args) -> Result<Quotient> {
        let by_zero = || Status::invalid_argument("divide by zero");
        let quotient = args.a.checked_div(args.b).ok_or_else(by_zero)?;
        Ok(Quotient { quotient, remainder: args.a.wrapping_rem(args.b) })
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    if let Some(url) = std::env::args().nth(1) {
        return call(&url).await;
    }
    let server = Server::new().service(ArithServer::new(Calculator)).bind("127.0.0.1:0").await?.start();
    for parameters in ["", "?transport=http-connect", "?codec=json"] {
        println!("net-rpc{parameters}");
        call(&format!("net-rpc://{}{parameters}", server.address())).await?;
    }
    Ok(())
}

async fn call(url: &str) -> Result<()> {
    let arith = ArithClient::new(Client::new(url)?);
    println!("Arith: 7*8={}", arith.multiply(Args { a: 7, b: 8 }).await?);
    let Quotient { quotient, remainder } = arith.divide(Args { a: 17, b: 8 }).await?;
    println!("Arith: 17/8={quotient} and {remainder} left");
    if let Err(error) = arith.divide(Args { a: 1, b: 0 }).await {
        println!("arith error: {}", error.message());
    }
    Ok(())
}

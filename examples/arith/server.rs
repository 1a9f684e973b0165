//! A service defined as a trait. The server runs until Ctrl-C or SIGTERM.
//!
//!     cargo run -p polyrpc-examples --bin arith_server [ADDRESS]

mod arith;

use std::time::Duration;

use polyrpc::{Result, Server, Status, signal};

use crate::arith::{Args, Arith, ArithServer, Reply};

struct Calculator;

impl Arith for Calculator {
    async fn mul(&self, args: Args) -> Result<Reply> {
        Ok(Reply { c: args.a.wrapping_mul(args.b) })
    }

    async fn div(&self, args: Args) -> Result<Reply> {
        let c = args.a.checked_div(args.b).ok_or_else(|| Status::invalid_argument("divide by zero"))?;
        Ok(Reply { c })
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8972".into());
    let server = Server::new().service(ArithServer::new(Calculator)).bind(address).await?;
    println!("listening on {}", server.address());
    server.run_until(signal::shutdown(), Duration::from_secs(10)).await;
    Ok(())
}

//! A client. The URL names the protocol.
//!
//!     cargo run --bin client [URL] [NAME]

use std::env;

use polyrpc::{Client, Result};
use {{crate}}::greeter::{GreeterClient, HelloRequest};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "grpc://127.0.0.1:8972".to_owned());
    let name = arguments.next().unwrap_or_else(|| "you".to_owned());

    let greeter = GreeterClient::new(Client::new(&url)?);
    let reply = greeter.hello(HelloRequest { name, ..Default::default() }).await?;
    println!("{}", reply.message);
    Ok(())
}

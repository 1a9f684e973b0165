//! A client. The URL names the protocol.
//!
//!     cargo run --bin client [URL] [NAME]

use std::env;

use polyrpc::{Client, Result};
use {{crate}}::Person;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "rpcx://127.0.0.1:8972".to_owned());
    let name = arguments.next().unwrap_or_else(|| "you".to_owned());

    let client = Client::new(&url)?;
    let greeting: String = client.call("hello", &Person { name, age: 34 }).await?;
    let sum: i64 = client.call("add", &(1, 2)).await?;
    println!("{greeting}, 1 + 2 = {sum}");
    Ok(())
}

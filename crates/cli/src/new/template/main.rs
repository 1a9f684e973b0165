//! The server. It answers every protocol on one port, until Ctrl-C or SIGTERM.
//!
//!     cargo run [ADDRESS]

use std::env;
use std::time::Duration;

use polyrpc::{Result, signal};

#[tokio::main]
async fn main() -> Result<()> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8972".to_owned());
    let server = {{crate}}::server().bind(address).await?;
    println!("listening on {}", server.address());
    // Accepted calls may take up to ten more seconds.
    server.run_until(signal::shutdown(), Duration::from_secs(10)).await;
    Ok(())
}

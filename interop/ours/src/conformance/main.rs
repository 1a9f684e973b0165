//! The programs that connectrpc/conformance tests: the server says on standard output where it listens, and serves until
//! it is killed; the client makes the calls that it reads from standard input, and writes what became of them.
//!
//! ```text
//! connectconformance --mode server --conf config.yaml -- polyrpc-conformance server
//! connectconformance --mode client --conf config.yaml -- polyrpc-conformance client
//! ```

mod answer;
mod cancel;
mod case;
mod client;
mod length_prefixed;
mod outcome;
mod payload;
mod server;
mod service;
mod streams;

/// The suite's messages.
#[allow(warnings, reason = "generated")]
mod proto {
    polyrpc::include_proto!("connectrpc.conformance.v1");
}

use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("server") => server::run().await,
        Some("client") => client::run().await,
        _ => Err("usage: polyrpc-conformance server|client".into()),
    }
}

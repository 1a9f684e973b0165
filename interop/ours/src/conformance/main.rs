//! The server that connectrpc/conformance tests: it says on standard output where it listens, and serves until its
//! standard input ends.
//!
//! ```text
//! connectconformance --mode server --conf config.yaml -- polyrpc-conformance
//! ```

mod answer;
mod payload;
mod service;

/// The suite's messages.
#[allow(warnings, reason = "generated")]
mod proto {
    polyrpc::include_proto!("connectrpc.conformance.v1");
}

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use buffa::Message;
use polyrpc::Server;
use polyrpc::server::Limits;

use crate::proto::{ConformanceServiceServer, ServerCompatRequest, ServerCompatResponse};
use crate::service::Conformance;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let asked = ServerCompatRequest::decode_from_slice(&read_sized(&mut io::stdin().lock())?)?;
    let mut server = Server::new().service(ConformanceServiceServer::new(Conformance));
    if asked.message_receive_limit > 0 {
        let limit = asked.message_receive_limit as usize;
        server = server.limits(Limits { message: limit, decompressed: limit, ..Limits::default() });
    }
    let bound = server.bind("127.0.0.1:0").await?;
    let address: SocketAddr = bound.address().to_string().parse()?;
    let told = ServerCompatResponse {
        host: address.ip().to_string(),
        port: address.port().into(),
        ..Default::default()
    };
    write_sized(&mut io::stdout().lock(), &told.encode_to_vec())?;
    bound.run_until(std::future::pending(), std::time::Duration::ZERO).await;
    Ok(())
}

/// A message behind its length in four bytes.
fn read_sized(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn write_sized(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u32).to_be_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

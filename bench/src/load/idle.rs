//! Connections that send nothing, or nothing more after one call.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{IO_TIMEOUT, Load, Tally};
use crate::exchange::{Exchange, LONGEST_HEADER};

/// Open connections; its window is empty, the server's memory is measured.
#[derive(Debug)]
pub(crate) struct Idle {
    _connections: Vec<TcpStream>,
}

impl Idle {
    /// Opens `connections` and makes `first_call` on each, if there is one.
    pub(crate) fn connect(
        server: SocketAddr,
        connections: usize,
        first_call: Option<&Exchange>,
    ) -> io::Result<Self> {
        let open = || {
            let mut stream = TcpStream::connect(server)?;
            if let Some(exchange) = first_call {
                call_once(&mut stream, exchange)?;
            }
            Ok(stream)
        };
        let connections = (0..connections).map(|_| open()).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { _connections: connections })
    }
}

impl Load for Idle {
    fn run(&mut self, _window: Duration) -> io::Result<Tally> {
        Ok(Tally::default())
    }
}

/// Makes one call, verifies the complete reply, and returns it.
pub(super) fn call_once(stream: &mut TcpStream, exchange: &Exchange) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.write_all(&exchange.request)?;

    let mut header = [0; LONGEST_HEADER];
    let header = &mut header[..exchange.framing.header_len()];
    stream.read_exact(header)?;
    let len = exchange.framing.frame_len(header)?;
    if len > 2 * exchange.reply.len() + 1024 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply is far longer than the message"));
    }
    let mut body = vec![0; len - header.len()];
    stream.read_exact(&mut body)?;
    exchange.verify(&body)?;
    Ok([&*header, &body].concat())
}

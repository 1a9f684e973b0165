//! One call in flight, made by the waiting thread. Two system calls per call.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::exchange::{Exchange, floor};
use crate::load::{LatencyRecorder, Load, Tally};

/// A connection used by one thread, one call at a time.
#[derive(Debug)]
pub(crate) struct Blocking {
    stream: TcpStream,
    request: Vec<u8>,
    /// The length of a reply and the id of the call in flight.
    expected_header: Vec<u8>,
    expected_body: Vec<u8>,
    /// As long as a reply, so that one read returns exactly one.
    reply: Vec<u8>,
    id: u64,
}

impl Blocking {
    /// Connects, without a timeout: a timer for every read would raise the floor, and the parent kills a
    /// run that hangs.
    pub(crate) fn connect(server: SocketAddr, exchange: &Exchange) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            request: exchange.request.clone(),
            expected_header: exchange.reply[..exchange.framing.header_len()].to_vec(),
            expected_body: exchange.reply[exchange.framing.header_len()..].to_vec(),
            reply: vec![0; exchange.reply.len()],
            id: 0,
        })
    }

    /// Makes one call and returns whether the reply matches it.
    fn call(&mut self) -> io::Result<bool> {
        self.id += 1;
        floor::set_id(&mut self.request, self.id);
        self.stream.write_all(&self.request)?;
        self.stream.read_exact(&mut self.reply)?;

        floor::set_id(&mut self.expected_header, self.id);
        let body = self.reply.strip_prefix(&self.expected_header[..]);
        Ok(body == Some(&self.expected_body[..]))
    }
}

impl Load for Blocking {
    fn run(&mut self, window: Duration) -> io::Result<Tally> {
        let mut latencies = LatencyRecorder::start(window);
        let mut began = latencies.started();
        while latencies.is_open_at(began) {
            let right = self.call()?;
            let ended = Instant::now();
            latencies.record(began, ended, 1);
            latencies.record_errors(u64::from(!right));
            began = ended;
        }
        Ok(latencies.finish())
    }
}

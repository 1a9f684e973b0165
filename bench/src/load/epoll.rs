//! The raw load client: one thread, one epoll, prebuilt requests, replies counted and discarded.
//!
//! All requests are equal, so all replies must be equal to the first one, which is verified.
//!
//! It costs so little that the measurement covers the server, and it is the same client for the
//! floor and for PolyRPC: only the request's bytes and the position of the length in a header differ.
//! Calls of one connection are timed as if answered in order, as an echo server does.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

use super::replies::Replies;
use super::{IO_TIMEOUT, LatencyRecorder, Load, Tally};
use crate::exchange::Exchange;

/// `connections`, each with `in_flight` calls at any time.
#[derive(Debug)]
pub(crate) struct Epoll {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    in_flight: usize,
    /// `in_flight` consecutive requests, so that any number of them is sent by one write.
    requests: Vec<u8>,
    request_len: usize,
    inbox: Vec<u8>,
}

impl Epoll {
    pub(crate) fn connect(
        server: SocketAddr,
        exchange: &Exchange,
        connections: usize,
        in_flight: usize,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let connections = (0..connections)
            .map(|token| Connection::open(server, exchange, &epoll, token))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            epoll,
            connections,
            in_flight,
            requests: exchange.request.repeat(in_flight),
            request_len: exchange.request.len(),
            inbox: vec![0; INBOX],
        })
    }
}

const INBOX: usize = 256 * 1024;
const EVENTS: usize = 256;

impl Load for Epoll {
    fn run(&mut self, window: Duration) -> io::Result<Tally> {
        let mut latencies = LatencyRecorder::start(window);
        let mut waiting = 0;
        for connection in &mut self.connections {
            connection.queue_calls(self.in_flight, self.request_len, latencies.started());
            connection.flush(&self.requests, self.request_len, &self.epoll)?;
            waiting += self.in_flight;
        }

        let mut events = Vec::with_capacity(EVENTS);
        while waiting > 0 {
            wait(&self.epoll, &mut events)?;
            let now = Instant::now();
            for event in events.drain(..) {
                let connection = &mut self.connections[event.data.u64() as usize];
                let answered = connection.read(&mut self.inbox, now, &mut latencies)?;
                if latencies.is_open_at(now) {
                    connection.queue_calls(answered, self.request_len, now);
                } else {
                    waiting -= answered;
                }
                connection.flush(&self.requests, self.request_len, &self.epoll)?;
            }
        }
        Ok(latencies.finish())
    }
}

/// Waits for events, with a timeout.
fn wait(epoll: &OwnedFd, events: &mut Vec<Event>) -> io::Result<()> {
    let timeout = Timespec { tv_sec: IO_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "the server stopped answering")),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    token: usize,
    replies: Replies,
    /// Start times of the calls in flight, oldest first, with the number of each.
    began: VecDeque<(Instant, u64)>,
    /// Bytes of requests still to write.
    unsent: usize,
    /// Bytes of the first of them already written.
    written_of_first: usize,
    waits_to_write: bool,
}

impl Connection {
    /// Connects, and makes one call whose complete reply is verified.
    fn open(server: SocketAddr, exchange: &Exchange, epoll: &OwnedFd, token: usize) -> io::Result<Self> {
        let mut stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        let reply = super::idle::call_once(&mut stream, exchange)?;
        if token == 0 && reply.len() != exchange.reply.len() {
            let reply_len = reply.len();
            eprintln!("note: replies of {reply_len} bytes; the floor's have {}", exchange.reply.len());
        }
        stream.set_nonblocking(true)?;
        epoll::add(epoll, &stream, EventData::new_u64(token as u64), EventFlags::IN)?;
        Ok(Self {
            stream,
            token,
            replies: Replies::new(exchange.framing, reply),
            began: VecDeque::new(),
            unsent: 0,
            written_of_first: 0,
            waits_to_write: false,
        })
    }

    /// Queues `calls` more; [`flush`](Self::flush) sends them.
    fn queue_calls(&mut self, calls: usize, request_len: usize, now: Instant) {
        if calls > 0 {
            self.unsent += calls * request_len;
            self.began.push_back((now, calls as u64));
        }
    }

    fn flush(&mut self, requests: &[u8], request_len: usize, epoll: &OwnedFd) -> io::Result<()> {
        while self.unsent > 0 {
            let due = &requests[self.written_of_first..][..self.unsent];
            match self.stream.write(due) {
                Ok(written) => {
                    self.unsent -= written;
                    self.written_of_first = (self.written_of_first + written) % request_len;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.wait_to_write(self.unsent > 0, epoll)
    }

    fn wait_to_write(&mut self, wait: bool, epoll: &OwnedFd) -> io::Result<()> {
        if self.waits_to_write != wait {
            self.waits_to_write = wait;
            let interest = if wait { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(epoll, &self.stream, EventData::new_u64(self.token as u64), interest)?;
        }
        Ok(())
    }

    /// Reads what is available and returns the number of answered calls.
    fn read(&mut self, inbox: &mut [u8], now: Instant, latencies: &mut LatencyRecorder) -> io::Result<usize> {
        let mut answered = 0;
        loop {
            let read = match self.stream.read(inbox) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let counted = self.replies.count(&inbox[..read])?;
            latencies.record_errors(counted.wrong);
            self.end(counted.replies, now, latencies)?;
            answered += counted.replies as usize;
            if read < inbox.len() {
                break; // nothing more is there: a read that says so would cost a system call
            }
        }
        Ok(answered)
    }

    /// Records that the oldest `replies` calls in flight ended now.
    fn end(&mut self, mut replies: u64, now: Instant, latencies: &mut LatencyRecorder) -> io::Result<()> {
        while replies > 0 {
            let Some((began, calls)) = self.began.front_mut() else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an unsolicited reply"));
            };
            let ended = replies.min(*calls);
            latencies.record(*began, now, ended);
            *calls -= ended;
            replies -= ended;
            if *calls == 0 {
                self.began.pop_front();
            }
        }
        Ok(())
    }
}

//! The floor: frames of the same length in both directions over the same sockets, without any RPC.
//!
//! A frame is its length as 4 bytes, the caller's number as 8, and the message. Both sides have one thread, epoll, and write
//! all frames of a connection that are due at once.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use polyrpc_bench_report::hdr;
use polyrpc_load::{Histogram, Process};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use serde_json::json;

use super::serve::end_with_standard_input;
use crate::bench::options::parse_positive;
use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
pub(super) struct ServeOptions {
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

#[derive(Debug, Args)]
pub(super) struct CallOptions {
    #[arg(long)]
    address: String,
    /// Unused: a frame has no method
    #[arg(long, default_value = "")]
    contract: String,
    /// A file whose length is that of a message
    #[arg(long)]
    message: PathBuf,
    #[arg(long)]
    callers: usize,
    #[arg(long, value_parser = parse_positive)]
    connections: usize,
    #[arg(long, value_parser = terminal::parse_duration)]
    warmup: Duration,
    #[arg(long, value_parser = terminal::parse_duration)]
    window: Duration,
    /// Time between the starts of two calls of a caller
    #[arg(long, value_parser = terminal::parse_duration, default_value = "0")]
    interval: Duration,
}

/// One connection of either side.
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    waits_for_space: bool,
}

struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

/// What is read at once. One for all connections.
type Buffer = [u8; 64 << 10];

pub(super) fn serve(options: &ServeOptions) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::system("serve frames", &error);
    let listener = TcpListener::bind(&options.listen)
        .map_err(|error| Failure::system(format!("listen on {}", options.listen), &error))?;
    end_with_standard_input();
    terminal::print(&format!("listening {}", listener.local_addr().map_err(failed)?))?;
    answer(&listener).map_err(failed)
}

fn answer(listener: &TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut poll = Poll::new()?;
    poll.add(listener, LISTENER)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut buffer: Box<Buffer> = Box::new([0; 64 << 10]);
    loop {
        for token in poll.wait(None)? {
            if token == LISTENER {
                accept(listener, &poll, &mut connections)?;
                continue;
            }
            let at = token as usize;
            let Some(connection) = connections.get_mut(at).and_then(Option::as_mut) else { continue };
            if connection.echo(&mut buffer, &poll, token).is_err() {
                connections[at] = None;
            }
        }
    }
}

fn accept(listener: &TcpListener, poll: &Poll, connections: &mut Vec<Option<Connection>>) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let at = connections.iter().rposition(Option::is_none).filter(|_| connections.len() > 4096);
                let at = at.unwrap_or(connections.len());
                let connection = Connection::new(stream, poll, at as u64)?;
                match connections.get_mut(at) {
                    Some(slot) => *slot = Some(connection),
                    None => connections.push(Some(connection)),
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// What the client counts.
struct Tally {
    begins: Instant,
    ends: Instant,
    times: Histogram<u64>,
}

/// A connection with its calls in flight; replies come in order.
struct Caller {
    connection: Connection,
    started: VecDeque<Instant>,
    /// Callers that wait until their next call is due.
    due: VecDeque<Instant>,
}

pub(super) fn call(options: &CallOptions) -> Result<(), Failure> {
    let result =
        measure(options).map_err(|error| Failure::system(format!("call {}", options.address), &error))?;
    terminal::print(&result).map(drop)
}

fn measure(options: &CallOptions) -> io::Result<String> {
    let length = usize::try_from(std::fs::metadata(&options.message)?.len()).map_err(io::Error::other)?;
    let frame = frame(length)?;
    let mut poll = Poll::new()?;
    let mut callers = Vec::with_capacity(options.connections);
    for number in 0..options.connections {
        let stream = TcpStream::connect(&options.address)?;
        let connection = Connection::new(stream, &poll, number as u64)?;
        callers.push(Caller { connection, started: VecDeque::new(), due: VecDeque::new() });
    }
    for caller in 0..options.callers {
        callers[caller % options.connections].start(&frame);
    }
    for (number, caller) in callers.iter_mut().enumerate() {
        caller.connection.write(&poll, number as u64)?;
    }
    let (begins, ends) = bounds(options, Instant::now()).ok_or_else(|| {
        io::Error::new(ErrorKind::InvalidInput, "the measurement would take longer than a clock can count")
    })?;
    let times = Histogram::new_with_bounds(1, HOUR, 3).map_err(io::Error::other)?;
    let mut tally = Tally { begins, ends, times };
    let mut cpu = None;
    let mut buffer: Box<Buffer> = Box::new([0; 64 << 10]);
    while Instant::now() < ends {
        if cpu.is_none() && Instant::now() >= begins {
            cpu = Some(Process::this().cpu().unwrap_or_default());
            terminal::print("begin").map_err(|failure| io::Error::other(failure.to_string()))?;
        }
        let next = if cpu.is_none() { begins } else { ends };
        let next =
            callers.iter().filter_map(|caller| caller.due.front()).fold(next, |next, due| next.min(*due));
        for token in poll.wait(Some(next.saturating_duration_since(Instant::now())))? {
            let caller = &mut callers[token as usize];
            caller.receive(&mut buffer, &frame, options.interval, &mut tally)?;
            caller.connection.write(&poll, token)?;
        }
        if !options.interval.is_zero() {
            start_due(&mut callers, &frame, &poll)?;
        }
    }
    terminal::print("end").map_err(|failure| io::Error::other(failure.to_string()))?;
    let spent = Process::this().cpu().unwrap_or_default().saturating_sub(cpu.unwrap_or_default());
    let result = json!({
        "failed": 0,
        "window_s": options.window.as_secs_f64(),
        "cpu_s": spent.as_secs_f64(),
        "rss_bytes": peak_memory(),
        "hdr": hdr::encode(&tally.times),
    });
    Ok(result.to_string())
}

/// Returns when the measurement that starts now begins and ends.
fn bounds(options: &CallOptions, now: Instant) -> Option<(Instant, Instant)> {
    let begins = now.checked_add(options.warmup)?;
    Some((begins, begins.checked_add(options.window)?))
}

fn start_due(callers: &mut [Caller], frame: &[u8], poll: &Poll) -> io::Result<()> {
    let now = Instant::now();
    for (number, caller) in callers.iter_mut().enumerate() {
        while caller.due.front().is_some_and(|due| *due <= now) {
            caller.due.pop_front();
            caller.start(frame);
        }
        caller.connection.write(poll, number as u64)?;
    }
    Ok(())
}

fn frame(length: usize) -> io::Result<Vec<u8>> {
    let size = u32::try_from(HEADER + length).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(HEADER + length);
    frame.extend_from_slice(&size.to_le_bytes());
    frame.extend_from_slice(&[7; 8]);
    frame.resize(HEADER + length, b'A');
    Ok(frame)
}

impl Caller {
    fn start(&mut self, frame: &[u8]) {
        self.connection.unsent.extend_from_slice(frame);
        self.started.push_back(Instant::now());
    }

    /// Counts the replies, and starts the next calls.
    fn receive(
        &mut self,
        buffer: &mut Buffer,
        frame: &[u8],
        interval: Duration,
        tally: &mut Tally,
    ) -> io::Result<()> {
        if !self.connection.read(buffer)? {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed a connection"));
        }
        let now = Instant::now();
        let replies = self.connection.received.len() / frame.len();
        for reply in self.connection.received.chunks_exact(frame.len()) {
            if reply != frame {
                return Err(io::Error::new(ErrorKind::InvalidData, "the reply is not the request"));
            }
            let Some(started) = self.started.pop_front() else {
                return Err(io::Error::new(ErrorKind::InvalidData, "there are more replies than requests"));
            };
            if tally.begins <= now && now < tally.ends {
                let nanos = now.duration_since(started).as_nanos().min(u128::from(HOUR)) as u64;
                tally.times.saturating_record(nanos.max(1));
            }
            match interval.is_zero() {
                true => {
                    self.connection.unsent.extend_from_slice(frame);
                    self.started.push_back(now);
                }
                // Never, if no clock counts that far.
                false => self.due.extend(started.checked_add(interval)),
            }
        }
        self.connection.received.drain(..replies * frame.len());
        Ok(())
    }
}

impl Connection {
    fn new(stream: TcpStream, poll: &Poll, token: u64) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        poll.add(&stream, token)?;
        Ok(Self { stream, received: Vec::new(), unsent: Vec::new(), waits_for_space: false })
    }

    /// Sends back the whole frames.
    fn echo(&mut self, buffer: &mut Buffer, poll: &Poll, token: u64) -> io::Result<()> {
        if !self.read(buffer)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut whole = 0;
        while let Some(head) = self.received.get(whole..whole + 4) {
            let size = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            if !(HEADER..=MAX_BYTES).contains(&size) {
                return Err(ErrorKind::InvalidData.into());
            }
            if self.received.len() < whole + size {
                break;
            }
            whole += size;
        }
        self.unsent.extend_from_slice(&self.received[..whole]);
        self.received.drain(..whole);
        self.write(poll, token)
    }

    /// Reads what is there. `false` at the end.
    fn read(&mut self, buffer: &mut Buffer) -> io::Result<bool> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    if count < buffer.len() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&mut self, poll: &Poll, token: u64) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let waits = !self.unsent.is_empty();
        if waits != self.waits_for_space {
            self.waits_for_space = waits;
            poll.change(&self.stream, token, waits)?;
        }
        Ok(())
    }
}

impl Poll {
    fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(1024) })
    }

    fn add(&self, source: impl rustix::fd::AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), EventFlags::IN)?)
    }

    fn change(&self, source: impl rustix::fd::AsFd, token: u64, waits_for_space: bool) -> io::Result<()> {
        let flags = if waits_for_space { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), flags)?)
    }

    /// Tokens of what is ready.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Vec<u64>> {
        self.events.clear();
        let timeout = timeout.map(rustix::time::Timespec::try_from).transpose().map_err(io::Error::other)?;
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) => Ok(self.events.iter().map(|event| event.data.u64()).collect()),
            Err(rustix::io::Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The largest resident memory so far, in bytes.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

const HEADER: usize = 12;
const LISTENER: u64 = u64::MAX;
const HOUR: u64 = 3_600_000_000_000;
/// Longest frame that a server takes.
const MAX_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: CallOptions,
    }

    fn parse(connections: &str, times: &str) -> Result<CallOptions, String> {
        let line =
            format!("floor-call --address h:1 --message m --callers 1 --connections={connections} {times}");
        Line::try_parse_from(line.split(' ')).map(|line| line.options).map_err(|error| error.to_string())
    }

    #[test]
    fn callers_need_a_connection() {
        assert_eq!(parse("2", "--warmup=1 --window=1").unwrap().connections, 2);
        let error = parse("0", "--warmup=1 --window=1").unwrap_err();
        assert!(error.contains("expected a number above 0"), "{error}");
    }

    #[test]
    fn impossible_times_are_errors() {
        for wrong in ["-1", "NaN", "inf", "99999999999999999999"] {
            for times in [
                format!("--warmup={wrong} --window=1"),
                format!("--warmup=1 --window={wrong}"),
                format!("--warmup=1 --window=1 --interval={wrong}"),
            ] {
                let error = parse("1", &times).unwrap_err();
                assert!(error.contains("is not a duration"), "{times}: {error}");
            }
        }
        // Durations, but beyond the end of the clock.
        for times in ["--warmup=18000000000000000000 --window=1", "--warmup=1 --window=18000000000000000000"]
        {
            assert_eq!(bounds(&parse("1", times).unwrap(), Instant::now()), None, "{times}");
        }
        let options = parse("1", "--warmup=0.5 --window=1500ms").unwrap();
        let now = Instant::now();
        let (begins, ends) = bounds(&options, now).unwrap();
        assert_eq!([begins - now, ends - begins], [500, 1500].map(Duration::from_millis));
        assert_eq!(options.interval, Duration::ZERO);
    }
}

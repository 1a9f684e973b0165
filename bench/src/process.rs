//! Communication between the parent and its child processes: lines of JSON one way, words the other.
//!
//! A server prints its address, then answers every line on its standard input with its [`ResourceUsage`]. A
//! client warms up, prints [`Ready`], waits for a line, makes its calls and prints [`Done`]. Both exit when
//! their standard input closes, so nothing outlives the parent. While the usage is read no call is in
//! flight: the difference of the CPU clocks between two readings is the cost of the calls in the window.

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

/// First output of a server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
}

/// Resources used by a server so far.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResourceUsage {
    pub(crate) cpu_ns: u64,
    pub(crate) resident_kib: u64,
    pub(crate) open_files: usize,
}

/// Output of a client once its connections are open and warm.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {}

/// Output of a client after the window.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) cpu_ns: u64,
    pub(crate) tally: Tally,
}

/// More than the 10,000 idle connections need.
const OPEN_FILES: u64 = 25_000;

/// Main function of a server's process.
pub(crate) fn serve(options: &ServerOptions) -> io::Result<()> {
    prepare(options.core)?;
    report_usage(options.start()?)
}

/// Prints the server's address, then answers each line on standard input with the resources used so far.
pub(crate) fn report_usage(address: SocketAddr) -> io::Result<()> {
    write_report(&Listening { address })?;
    for request in io::stdin().lines() {
        request?;
        write_report(&resource_usage()?)?;
    }
    Ok(())
}

/// Main function of a client's process.
pub(crate) fn call(options: &ClientOptions) -> io::Result<()> {
    prepare(options.core)?;
    run_load(&mut *options.connect()?, options.warm_up(), options.window())
}

/// Warms a load up, reports that, and runs it for a window on request.
pub(crate) fn run_load(load: &mut dyn Load, warm_up: Duration, window: Duration) -> io::Result<()> {
    load.run(warm_up)?;
    write_report(&Ready {})?;

    let mut commands = io::stdin().lines();
    if commands.next().transpose()?.is_some() {
        let before = measure::cpu_time();
        let tally = load.run(window)?;
        let cpu_ns = (measure::cpu_time() - before).as_nanos() as u64;
        write_report(&Done { cpu_ns, tally })?;
    }
    commands.try_for_each(|line| line.map(drop))
}

/// Runs before any thread is started, so that every thread is pinned to the core.
pub(crate) fn prepare(core: Option<usize>) -> io::Result<()> {
    measure::allow_open_files(OPEN_FILES);
    core.map_or(Ok(()), measure::pin)
}

fn resource_usage() -> io::Result<ResourceUsage> {
    Ok(ResourceUsage {
        cpu_ns: measure::cpu_time().as_nanos() as u64,
        resident_kib: measure::resident_kib()?,
        open_files: measure::open_files()?,
    })
}

pub(crate) fn write_report(report: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// A child process; killed when dropped.
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

    /// Starts a program with the same output format.
    pub(crate) fn start_program(program: &Path, arguments: &[String]) -> io::Result<Self> {
        let mut process =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = process.stdout.take().expect("its standard output is piped");
        let (sender, lines) = mpsc::channel();
        // A separate thread, so that a hanging process cannot block the parent. It ends with the pipe.
        thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| sender.send(line)));
        Ok(Self { process, lines })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends the line on its standard input for which the child waits.
    pub(crate) fn send_go(&mut self) -> io::Result<()> {
        let stdin = self.process.stdin.as_mut().expect("its standard input is piped");
        stdin.write_all(b"go\n")
    }

    /// Waits for its next output.
    ///
    /// # Errors
    ///
    /// If it exits, prints nothing `within` the time, or prints something else.
    pub(crate) fn read_report<T: DeserializeOwned>(&self, within: Duration) -> io::Result<T> {
        let line = self.lines.recv_timeout(within).map_err(|silence| match silence {
            mpsc::RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "a process hangs"),
            mpsc::RecvTimeoutError::Disconnected => io::Error::other("a process ended before its time"),
        })?;
        Ok(serde_json::from_str(&line?)?)
    }

    /// Requests the resources used by a server so far.
    pub(crate) fn resource_usage(&mut self) -> io::Result<ResourceUsage> {
        self.send_go()?;
        self.read_report(Duration::from_secs(10))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have exited already; either way it is gone afterwards.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

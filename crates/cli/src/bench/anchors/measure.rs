//! Runs a tool once.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::reading::{Environment, Load, Reading};
use super::tool::Tool;
use crate::bench::selftest::{Server, Stall};

/// What a run showed.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) reading: Reading,
    /// User and system time of the tool's process, from its start to its end.
    pub(super) cpu: Duration,
}

/// Runs a tool; `meanwhile` happens once it has started.
///
/// # Errors
///
/// In words: the tool cannot make the load, cannot be started, or measured nothing.
pub(super) fn run(
    (tool, program): (Tool, &Path),
    load: Load,
    environment: Environment<'_>,
    meanwhile: impl FnOnce(),
) -> Result<Measurement, String> {
    let arguments = tool.arguments(load, environment).ok_or("it has no rate")?;
    let before = cpu_of_children()?;
    let mut command = Command::new(program);
    let command = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    let child = read_within(child, load.length + GRACE);
    meanwhile();
    let output = child.join().map_err(|_| "its thread panicked")?.map_err(|error| error.to_string())?;
    let cpu = cpu_of_children()?.saturating_sub(before);
    Ok(Measurement { reading: tool.read(&output, load, environment)?, cpu })
}

/// Reads the output of a process until its end, and ends it if that is too late.
fn read_within(
    mut child: Child,
    max_duration: Duration,
) -> thread::JoinHandle<std::io::Result<std::process::Output>> {
    thread::spawn(move || {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let stdout = thread::spawn(move || read(stdout));
        let stderr = thread::spawn(move || read(stderr));
        let deadline = Instant::now() + max_duration;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                child.kill()?;
                break child.wait()?;
            }
            thread::sleep(POLL);
        };
        let joined = |reader: thread::JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
        Ok(std::process::Output { status, stdout: joined(stdout), stderr: joined(stderr) })
    })
}

fn read(stream: Option<impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What was read before an error is shown.
        let _ = stream.read_to_end(&mut bytes);
    }
    bytes
}

/// CPU time of all processes that were started here and have ended.
fn cpu_of_children() -> Result<Duration, String> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| error.to_string())?;
    let time = |time: TimeVal| {
        Duration::from_secs(time.tv_sec().unsigned_abs())
            + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// Stops the server once in each period.
pub(super) fn stall(server: &Server, stalls: u32, period: Duration, length: Duration) -> Vec<Stall> {
    let start = Instant::now() + period / 4;
    let stall = |number| {
        thread::sleep((start + period * number).saturating_duration_since(Instant::now()));
        // A server that has ended shows in the calls.
        Stall::make(server, length).ok()
    };
    (0..stalls).map_while(stall).collect()
}

/// Which cores the server and the tools may use, so that a tool with many threads takes no time from the server.
pub(super) struct Cores {
    all: CpuSet,
    server: CpuSet,
    tools: CpuSet,
}

impl Cores {
    /// The first core for the server, the others for the tools; `None` if there is only one, or they are not known.
    pub(super) fn split() -> Option<Self> {
        let all = sched_getaffinity(None).ok()?;
        let (mut server, mut tools) = (CpuSet::new(), CpuSet::new());
        for core in (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)) {
            let set = if server.count() == 0 { &mut server } else { &mut tools };
            set.set(core);
        }
        (tools.count() > 0).then_some(Self { all, server, tools })
    }

    /// Starts a process on the server's core.
    pub(super) fn for_server<T>(&self, start: impl FnOnce() -> T) -> T {
        self.run_within(&self.server, start)
    }

    /// Runs tools on the other cores.
    pub(super) fn for_tools<T>(&self, run: impl FnOnce() -> T) -> T {
        self.run_within(&self.tools, run)
    }

    /// A process inherits the cores of the thread that starts it.
    fn run_within<T>(&self, set: &CpuSet, run: impl FnOnce() -> T) -> T {
        // Without the permission the kernel places them.
        let _ = sched_setaffinity(None, set);
        let result = run();
        let _ = sched_setaffinity(None, &self.all);
        result
    }
}

/// Time for a tool to start and to wait for its last calls.
const GRACE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(1);

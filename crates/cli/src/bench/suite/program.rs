//! A program that this one starts and stops.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::bench::process_group::ProcessGroup;

/// A running program. It is killed when dropped, with the programs that it has started.
pub(super) struct Program {
    child: Child,
    group: ProcessGroup,
    /// How it ended.
    status: Option<ExitStatus>,
    /// Lines of its standard output, while they are awaited.
    lines: Receiver<String>,
    /// The end of its standard error.
    errors: Arc<Mutex<String>>,
}

/// What a program prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// A result, of which each line counts.
    Result,
    /// Lines that are not needed once the server is ready; they are read so that it is not blocked.
    Log,
}

/// Why no line can be read.
pub(super) enum NoLine {
    TimedOut,
    Ended,
}

impl Program {
    /// Starts `words` in `dir`, in a process group of its own.
    pub(super) fn start(dir: &Path, words: &[String], output: Output) -> Result<Self, String> {
        let (program, arguments) = words.split_first().ok_or("its command is empty")?;
        // `Command` looks for a relative program in this process's directory.
        let path = if program.contains('/') { dir.join(program) } else { program.into() };
        let mut command = Command::new(path);
        command.args(arguments).current_dir(dir);
        // Some servers end when their standard input is closed.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = ProcessGroup::start(&mut command);
        let (mut child, group) = started.map_err(|error| format!("{program} cannot be started: {error}"))?;
        let (sender, lines) = sync_channel(LINES);
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines() {
                    let Ok(line) = line else { break };
                    match output {
                        // The receiver is gone.
                        Output::Result => {
                            if sender.send(line).is_err() {
                                break;
                            }
                        }
                        Output::Log => drop(sender.try_send(line)),
                    }
                }
            });
        }
        let errors = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let kept = Arc::clone(&errors);
            thread::spawn(move || keep_end(stderr, &kept));
        }
        Ok(Self { child, group, status: None, lines, errors })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output.
    pub(super) fn line(&self, timeout: Duration) -> Result<String, NoLine> {
        self.lines.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => NoLine::TimedOut,
            RecvTimeoutError::Disconnected => NoLine::Ended,
        })
    }

    /// How it ended, if it did.
    pub(super) fn describe_end(&mut self) -> Option<String> {
        self.wait_for_end(Duration::ZERO)
    }

    /// How it ended, if it did or does within this time.
    pub(super) fn wait_for_end(&mut self, timeout: Duration) -> Option<String> {
        let status = self.wait(timeout)?;
        Some(self.describe(status))
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.reap() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(POLL);
        }
    }

    /// Describes an exit, with the last line of its standard error.
    pub(super) fn describe(&self, status: ExitStatus) -> String {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with code {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        };
        match self.last_error() {
            Some(line) => format!("{how}: {line}"),
            None => how,
        }
    }

    /// The last line of its standard error.
    pub(super) fn last_error(&self) -> Option<String> {
        // What it wrote last may still be in the pipe.
        thread::sleep(POLL);
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.lines().rev().find(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
    }

    /// Requests it to end, and kills it if it does not end in time.
    pub(super) fn stop(mut self, grace: Duration) {
        drop(self.child.stdin.take());
        if !grace.is_zero() {
            self.signal(Signal::TERM);
            let _ = self.wait(grace);
        }
        // Dropped: killed if it still runs.
    }

    /// Its status, if it has ended. What is left of its group is killed before its number is free for another process.
    fn reap(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && self.has_ended() {
            self.group.kill();
            self.status = self.child.wait().ok();
        }
        self.status
    }

    /// Looks without freeing its number.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(Pid::from_child(&self.child)), options), Ok(Some(_)))
    }

    /// To the whole group.
    fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // It may have ended.
            let _ = kill_process_group(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.group.kill();
            // It may have ended.
            let _ = self.child.wait();
        }
    }
}

/// Keeps the last bytes of what a program writes.
fn keep_end(mut stderr: impl Read, kept: &Mutex<String>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if kept.len() > MAX_KEPT {
            let mut from = kept.len() - MAX_KEPT / 2;
            while !kept.is_char_boundary(from) {
                from += 1;
            }
            kept.drain(..from);
        }
    }
}

/// A port that was free a moment ago.
pub(super) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// Whether something accepts connections there.
pub(super) fn accepts(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

const LINES: usize = 1024;
const MAX_KEPT: usize = 16 << 10;
/// Between two looks at a process.
pub(super) const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_a_program_starts_end_with_it() {
        let words = ["sh", "-c", "sleep 600 & echo started; wait"].map(str::to_owned);
        let program = Program::start(Path::new("."), &words, Output::Result).ok().unwrap();
        let wait = Duration::from_secs(60);
        assert_eq!(program.line(wait).ok().unwrap(), "started");
        program.group.kill();
        // The output is open for as long as one of both runs.
        assert!(matches!(program.line(wait), Err(NoLine::Ended)));
    }

    #[test]
    fn processes_left_by_an_ended_program_are_killed() {
        let words = ["sh", "-c", "sleep 600 & echo started; exit 3"].map(str::to_owned);
        let mut program = Program::start(Path::new("."), &words, Output::Result).ok().unwrap();
        let wait = Duration::from_secs(60);
        assert_eq!(program.line(wait).ok().unwrap(), "started");
        assert_eq!(program.wait(wait).and_then(|status| status.code()), Some(3));
        assert!(matches!(program.line(wait), Err(NoLine::Ended)));
    }
}

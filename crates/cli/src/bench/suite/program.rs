//! A program that this one starts and stops.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A running program. It is killed when dropped.
pub(super) struct Program {
    child: Child,
    /// Lines of its standard output, as long as somebody waits for them.
    lines: Receiver<String>,
    /// The end of its standard error.
    errors: Arc<Mutex<String>>,
}

/// What a program prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// A result, of which each line counts.
    Result,
    /// Lines that nobody waits for once the server is ready; they are read so that it is not blocked.
    Log,
}

/// Why there is no line.
pub(super) enum NoLine {
    TimedOut,
    Ended,
}

impl Program {
    /// Starts `words` in `dir`, in a process group of its own, so that Ctrl-C reaches only this program.
    pub(super) fn start(dir: &Path, words: &[String], output: Output) -> Result<Self, String> {
        let (program, arguments) = words.split_first().ok_or("its command is empty")?;
        // `Command` looks for a relative program in this process's directory.
        let path = if program.contains('/') { dir.join(program) } else { program.into() };
        let mut command = Command::new(path);
        command.args(arguments).current_dir(dir).process_group(0);
        // Some servers end when their standard input is closed.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{program} cannot be started: {error}"))?;
        let (sender, lines) = sync_channel(LINES);
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines() {
                    let Ok(line) = line else { break };
                    match output {
                        // Nobody is there any more.
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
        Ok(Self { child, lines, errors })
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
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(self.describe(status))
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(POLL);
        }
    }

    /// An exit in words, with the last line of its standard error.
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

    /// Asks it to end, and kills it if it does not in time.
    pub(super) fn stop(mut self, grace: Duration) {
        drop(self.child.stdin.take());
        if !grace.is_zero() {
            self.signal(Signal::TERM);
            let _ = self.wait(grace);
        }
        // Dropped: killed if it still runs.
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps the last bytes of what a program writes.
fn keep_end(mut stderr: impl Read, kept: &Mutex<String>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if kept.len() > MOST_KEPT {
            let mut from = kept.len() - MOST_KEPT / 2;
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
const MOST_KEPT: usize = 16 << 10;
/// Between two looks at a process.
pub(super) const POLL: Duration = Duration::from_millis(5);

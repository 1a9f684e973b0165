//! A server in a separate process, which reports its state on standard output on request.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use polyrpc::server::{BoundServer, Listen, ServerHandle};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::addresses::Addresses;
use super::authority;
use crate::service;

/// Arguments of a replica.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Its addresses, as JSON.
    #[arg(long)]
    addresses: String,
    /// Folder of its certificate.
    #[arg(long)]
    certificates: PathBuf,
}

/// State of a replica, as it reports it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// Tasks of its runtime.
    pub(crate) tasks: usize,
    pub(crate) connections: usize,
    /// Calls with a pending handler, and open streams.
    pub(crate) in_flight: usize,
    /// Bytes that its memory budget counts.
    pub(crate) budget: usize,
    /// Calls started so far.
    pub(crate) started: u64,
    /// Calls with an id that had been called before.
    pub(crate) repeated: u64,
}

/// Time in which it sends traffic elsewhere before it stops accepting.
const LAME_DUCK: Duration = Duration::from_millis(300);
/// Grace period of calls after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// Time in which the addresses of its predecessor become free.
const BIND_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves until standard input closes, or SIGTERM starts a graceful shutdown. Prints a line once it listens, and a
/// [`Snapshot`] for each line that it reads.
#[tokio::main]
pub(crate) async fn serve(options: &Options) -> io::Result<()> {
    let addresses: Addresses = serde_json::from_str(&options.addresses)?;
    let ledger = service::Ledger::default();
    let running = bind(&addresses, &options.certificates, &ledger).await?.start();
    let mut terminated = signal(SignalKind::terminate())?;
    let mut questions = questions();
    println!("{LISTENS}");
    loop {
        io::stdout().flush()?;
        tokio::select! {
            _ = terminated.recv() => {
                running.shutdown(GRACE).await;
                break;
            }
            question = questions.recv() => match question {
                Some(()) => println!("{}", serde_json::to_string(&Snapshot::new(&running, &ledger))?),
                None => break,
            },
        }
    }
    // Exits directly: dropping the runtime would wait for the thread that reads standard input.
    std::process::exit(0);
}

const LISTENS: &str = "listens";

/// Binds all addresses; a predecessor may still hold them.
async fn bind(
    addresses: &Addresses,
    certificates: &Path,
    ledger: &service::Ledger,
) -> io::Result<BoundServer> {
    let begun = Instant::now();
    loop {
        match bind_once(addresses, certificates, ledger).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < BIND_TIMEOUT => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            bound => return bound,
        }
    }
}

async fn bind_once(
    addresses: &Addresses,
    certificates: &Path,
    ledger: &service::Ledger,
) -> io::Result<BoundServer> {
    let tls = authority::watch(certificates)?;
    service::server()
        .function("once", ledger.once_function())
        .lame_duck(LAME_DUCK)
        .bind(addresses.tcp.as_str())
        .await?
        .and(format!("unix:{}", addresses.unix.display()))
        .await?
        .and(Listen::on(&addresses.tls).tls(tls.clone()))
        .await?
        .and(format!("kcp://{}", addresses.kcp))
        .await?
        .and(Listen::on(format!("quic://{}", addresses.quic)).tls(tls))
        .await
}

/// An item for each line of standard input; the end when that closes, since the parent has exited.
fn questions() -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut lines = io::stdin().lines();
        while lines.next().is_some_and(|line| line.is_ok()) && sender.blocking_send(()).is_ok() {}
    });
    receiver
}

impl Snapshot {
    fn new(server: &ServerHandle, ledger: &service::Ledger) -> Self {
        let info = server.info();
        Self {
            tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
            connections: info.connections.len(),
            in_flight: info.pending_calls + info.open_streams,
            budget: info.held_bytes,
            started: info.calls.started,
            repeated: ledger.repeated(),
        }
    }
}

/// Handle of a replica's process. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) addresses: Addresses,
    namespace: Option<String>,
    certificates: PathBuf,
    process: Process,
}

#[derive(Debug)]
struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Replica {
    /// Starts a replica with the certificate in this folder, on this host, and waits until it listens.
    pub(crate) fn start(host: &str, folder: &Path) -> io::Result<Self> {
        Self::start_at(Addresses::choose(host, folder)?, None, folder)
    }

    /// The same in a network namespace, which has this address.
    pub(crate) fn start_in(namespace: &str, host: &str, folder: &Path) -> io::Result<Self> {
        Self::start_at(Addresses::with_fixed_ports(host, folder), Some(namespace.to_owned()), folder)
    }

    fn start_at(addresses: Addresses, namespace: Option<String>, folder: &Path) -> io::Result<Self> {
        let process = Process::start(&addresses, namespace.as_deref(), folder)?;
        Ok(Self { addresses, namespace, certificates: folder.to_owned(), process })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.child.id()
    }

    pub(crate) fn send(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process.child), signal)?)
    }

    /// Waits until it has exited, killed or by itself, and starts it again at the same addresses.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.process.wait_for_exit()?;
        self.process = Process::start(&self.addresses, self.namespace.as_deref(), &self.certificates)?;
        Ok(())
    }

    /// Requests its state. Blocks until it has answered.
    pub(crate) fn snapshot(&mut self) -> io::Result<Snapshot> {
        self.process.stdin.write_all(b"\n")?;
        Ok(serde_json::from_str(&self.process.line()?)?)
    }
}

impl Process {
    fn start(addresses: &Addresses, namespace: Option<&str>, certificates: &Path) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = match namespace {
            None => Command::new(program),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(program);
                command
            }
        };
        let mut child = command
            .args(["replica", "--addresses", &serde_json::to_string(addresses)?])
            .arg("--certificates")
            .arg(certificates)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("standard input and output are pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut process = Self { child, stdin, stdout };
        match process.line()?.trim() {
            LISTENS => Ok(process),
            other => Err(io::Error::other(format!("the replica does not listen: {other}"))),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }

    fn wait_for_exit(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > GRACE + BIND_TIMEOUT {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the replica does not exit"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.addresses.unix);
    }
}

//! The server under attack: a separate process, so that its memory and CPU time can be measured.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use polyrpc::Address;
use polyrpc::server::{Listen, Publisher};
use polyrpc::tls::{self, Identity, Pem};
use polyrpc_console::{Admin, Console};
use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::measure::Memory;
use crate::profile::Profile;
use crate::service;

/// Arguments of the server.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[arg(long, value_enum)]
    profile: Profile,
}

/// Addresses of the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    /// Without authentication.
    pub(crate) open: String,
    /// Requires [`service::TOKEN`].
    pub(crate) guarded: String,
    pub(crate) unix: PathBuf,
    pub(crate) tls: String,
    pub(crate) kcp: String,
    pub(crate) quic: String,
    /// The admin listener, with the console of the server.
    pub(crate) admin: String,
    /// The certificate that clients trust, as PEM.
    pub(crate) certificate: String,
    /// Number of entries of metadata that a call of `Bare` may have at least.
    pub(crate) entries: usize,
}

impl Target {
    /// Empty addresses, for attacks that need no server.
    pub(crate) fn none() -> Self {
        let empty = String::new;
        Self {
            open: empty(),
            guarded: empty(),
            unix: PathBuf::new(),
            tls: empty(),
            kcp: empty(),
            quic: empty(),
            admin: empty(),
            certificate: empty(),
            entries: 0,
        }
    }

    /// Prints the addresses for the parent process, and waits for SIGTERM (returns `true`) or for the end of standard
    /// input (returns `false`).
    pub(crate) async fn announce_and_wait(&self) -> io::Result<bool> {
        println!("{}", serde_json::to_string(self)?);
        io::stdout().flush()?;
        let mut terminated = signal(SignalKind::terminate())?;
        Ok(tokio::select! {
            _ = terminated.recv() => true,
            _ = wait_for_parent_exit() => false,
        })
    }
}

/// A head has at most 512 fields, some of which are not metadata.
const MIN_METADATA_ENTRIES: usize = 500;

/// Grace period of calls after SIGTERM.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// Serves until standard input closes, or SIGTERM starts a graceful shutdown.
#[tokio::main]
pub(crate) async fn serve(options: &Options) -> io::Result<()> {
    let certificate = Certificate::issue().map_err(io::Error::other)?;
    let unix = std::env::temp_dir().join(format!("polyrpc-attack-{}.sock", std::process::id()));
    let guarded =
        Listen::on("127.0.0.1:0").authenticate(|credential, _peer| service::authenticate(credential));
    let server = service::server();
    tokio::spawn(publish(server.publisher()));
    let bound = server
        .limits(options.profile.limits())
        .bind("127.0.0.1:0")
        .await?
        .and(guarded)
        .await?
        .and(format!("unix:{}", unix.display()))
        .await?
        .and(Listen::on("127.0.0.1:0").tls(certificate.server()?))
        .await?
        .and("kcp://127.0.0.1:0")
        .await?
        .and(Listen::on("quic://127.0.0.1:0").tls(certificate.server()?))
        .await?;
    let running = bound.start();
    let console = Console::new();
    console.observe(&running);
    let operator = Admin::on("127.0.0.1:0").start(&console)?;
    let addresses: Vec<_> = running.addresses().iter().map(address_text).collect();
    let [open, guarded, _, tls, kcp, quic] = <[String; 6]>::try_from(addresses)
        .map_err(|_| io::Error::other("the server listens at six addresses"))?;
    let admin = address_text(operator.address());
    let certificate = certificate.certificate;
    let (socket_path, entries) = (unix.clone(), MIN_METADATA_ENTRIES);
    let target = Target { open, guarded, unix: socket_path, tls, kcp, quic, admin, certificate, entries };
    if target.announce_and_wait().await? {
        running.shutdown(GRACE).await;
    }
    let _ = std::fs::remove_file(unix);
    // Exits directly: dropping the runtime would wait for the thread that reads standard input.
    std::process::exit(0);
}

/// Publishes 16 KiB under the topic `news` repeatedly.
async fn publish(publisher: Publisher) {
    let news = "x".repeat(16 << 10);
    loop {
        let _ = publisher.publish("news", "", &news);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until standard input closes, since the parent has exited or no longer needs the server.
async fn wait_for_parent_exit() {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = sender.send(());
    });
    let _ = receiver.await;
}

pub(crate) fn address_text(address: &Address) -> String {
    match address {
        Address::Tcp(address) | Address::Kcp(address) | Address::Quic(address) => address.clone(),
        Address::Unix(path) => path.display().to_string(),
        address => address.to_string(),
    }
}

/// A certificate that signs itself, as PEM.
pub(crate) struct Certificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Certificate {
    pub(crate) fn issue() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let certificate = CertificateParams::new(names)?.self_signed(&key)?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    fn server(&self) -> io::Result<tls::Server> {
        let identity = Identity::new(Pem::bytes(self.certificate.clone()), Pem::bytes(self.key.clone()));
        tls::Server::builder(identity).build().map_err(io::Error::other)
    }
}

/// Handle of the process under attack: a server, a gateway or the sink. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct TargetProcess {
    child: Child,
    /// The server runs while this is open.
    _stdin: ChildStdin,
    pub(crate) target: Target,
}

impl TargetProcess {
    pub(crate) fn start(profile: Profile) -> io::Result<Self> {
        Self::start_as(&["target-server", "--profile", profile.pick("full", "short")])
    }

    /// Starts a server for a gateway.
    pub(crate) fn start_upstream() -> io::Result<Self> {
        Self::start_as(&["target-server", "--profile", "upstream"])
    }

    /// Starts a gateway in front of a server.
    pub(crate) fn start_gateway(profile: Profile, server: &Self) -> io::Result<Self> {
        let profile = profile.pick("full", "short");
        Self::start_as(&["gateway", "--profile", profile, "--before", &server.target.open])
    }

    /// Starts the [sink](crate::sink) instead of the server.
    pub(crate) fn start_sink() -> io::Result<Self> {
        Self::start_as(&["sink"])
    }

    /// Starts this program in a role that prints its addresses.
    fn start_as(arguments: &[&str]) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("standard input is a pipe"))?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("standard output is a pipe"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let target = serde_json::from_str(&line)
            .map_err(|_| io::Error::other("the server did not say where it listens"))?;
        Ok(Self { child, _stdin: stdin, target })
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory::of_process(self.child.id())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM and waits for the exit. Returns how long it took; `None` if longer than `wait_limit`.
    pub(crate) fn terminate(&mut self, wait_limit: Duration) -> io::Result<Option<Duration>> {
        let begun = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        while begun.elapsed() < wait_limit {
            if !self.is_running() {
                return Ok(Some(begun.elapsed()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(None)
    }
}

impl Drop for TargetProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.target.unix);
    }
}

//! The measured proxies, each in front of the same upstream. All but ours are separate programs, of the distribution or
//! from PyPI (`bench/peers/neighbours`).

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;

use super::configuration;
use crate::measure;
use crate::process::{Child, Listening};
use crate::run::REPORT_TIMEOUT;

/// A proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Proxy {
    /// None: the client calls the upstream.
    Direct,
    /// This project, which forwards gRPC messages without decoding.
    Polyrpc,
    Nghttpx,
    Haproxy,
    Nginx,
    Envoy,
}

/// Format of the callers; upstreams get gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Input {
    Grpc,
    /// JSON over HTTP/1.1.
    Json,
}

/// A proxy that runs until it is dropped.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    /// `None` without a proxy.
    process: Option<ProxyProcess>,
    folder: PathBuf,
}

enum ProxyProcess {
    Ours(Child),
    Foreign(Process),
}

impl Proxy {
    pub(super) const ALL: [Self; 6] =
        [Self::Direct, Self::Polyrpc, Self::Nghttpx, Self::Haproxy, Self::Nginx, Self::Envoy];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Polyrpc => "polyrpc",
            Self::Nghttpx => "nghttpx",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
        }
    }

    /// Starts it on one thread, in front of a gRPC server.
    pub(super) fn start(self, input: Input, upstream: SocketAddr) -> io::Result<Running> {
        let folder = scratch()?;
        if self == Self::Direct {
            return Ok(Running { address: upstream, process: None, folder });
        }
        if self == Self::Polyrpc {
            let schema = if input == Input::Json { "--schema" } else { "--no-schema" };
            let child = Child::start(&[
                "gateway-server".to_owned(),
                format!("--upstream={upstream}"),
                schema.to_owned(),
            ])?;
            let Listening { address } = child.read_report(REPORT_TIMEOUT)?;
            return Ok(Running { address, process: Some(ProxyProcess::Ours(child)), folder });
        }
        let address = free_address()?;
        let mut command = self.command(input, (address, upstream), &folder)?;
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.map_err(|error| {
            let name = self.as_str();
            io::Error::new(error.kind(), format!("{name}: {error} (is it installed? bench/peers/neighbours)"))
        })?;
        let mut running = Running { address, process: Some(ProxyProcess::Foreign(process)), folder };
        running.wait_until_it_listens(self.as_str())?;
        Ok(running)
    }

    fn command(
        self,
        input: Input,
        (address, upstream): (SocketAddr, SocketAddr),
        folder: &Path,
    ) -> io::Result<Command> {
        let file = folder.join("configuration");
        let written = |text: String| fs::write(&file, text);
        let mut command = Command::new(self.program());
        match self {
            Self::Nghttpx => {
                command.args(configuration::nghttpx(address, upstream));
            }
            Self::Haproxy => {
                written(configuration::haproxy(address, upstream))?;
                command.arg("-f").arg(&file);
            }
            Self::Nginx => {
                written(configuration::nginx(address, upstream, folder))?;
                command.arg("-p").arg(folder).arg("-e").arg("/dev/null").arg("-c").arg(&file);
            }
            _ => {
                let set = folder.join("descriptors");
                if input == Input::Json {
                    fs::write(&set, configuration::descriptors()?)?;
                }
                written(configuration::envoy(address, upstream, (input == Input::Json).then_some(&*set)))?;
                let options =
                    ["--concurrency", "1", "--disable-hot-restart", "--log-level", "off", "--config-path"];
                command.args(options).arg(&file);
            }
        }
        Ok(command)
    }

    fn program(self) -> PathBuf {
        match self {
            Self::Envoy => Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/envoy/bin/envoy-program"),
            // Debian has servers where only root looks for programs.
            _ => {
                let paths = ["/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/sbin"];
                let paths = paths.into_iter().map(|folder| Path::new(folder).join(self.as_str()));
                paths.into_iter().find(|path| path.exists()).unwrap_or_else(|| self.as_str().into())
            }
        }
    }
}

impl Running {
    /// CPU time so far, in nanoseconds; nothing may be in flight.
    pub(super) fn cpu_ns(&self) -> io::Result<u64> {
        self.id().map_or(Ok(0), measure::cpu_ns_of)
    }

    pub(super) fn resident_kib(&self) -> io::Result<u64> {
        self.id().map_or(Ok(0), measure::resident_kib_of)
    }

    fn id(&self) -> Option<u32> {
        match self.process.as_ref()? {
            ProxyProcess::Ours(child) => Some(child.id()),
            ProxyProcess::Foreign(process) => Some(process.id()),
        }
    }

    fn wait_until_it_listens(&mut self, name: &str) -> io::Result<()> {
        let deadline = Instant::now() + REPORT_TIMEOUT;
        while TcpStream::connect(self.address).is_err() {
            if let Some(ProxyProcess::Foreign(process)) = &mut self.process
                && let Some(status) = process.try_wait()?
            {
                return Err(io::Error::other(format!("{name} ended at once, with {status}")));
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{name} does not listen")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(ProxyProcess::Foreign(process)) = &mut self.process {
            // It may have exited already; either way it is gone afterwards.
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An address that is free now: these programs cannot say which one the system chose.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn scratch() -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("polyrpc-bench-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

//! The measured servers. Foreign ones are separate programs, built by `bench/peers/build`.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;

use crate::process::{Child, Listening};
use crate::run::REPORT_TIMEOUT;

/// The server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Peer {
    /// This project.
    Polyrpc,
    /// tonic, on the crates h2 and hyper.
    Tonic,
    /// The same on one thread, like ours: its cheapest form, since no thread wakes another.
    TonicOneThread,
    /// grpc-go.
    GrpcGo,
    /// The same on one thread.
    GrpcGoOneThread,
    /// gRPC C++.
    GrpcCpp,
}

impl Peer {
    /// Each in its default configuration, and on as many threads as ours, if it can.
    pub(super) const ALL: [Self; 6] = [
        Self::Polyrpc,
        Self::Tonic,
        Self::TonicOneThread,
        Self::GrpcGo,
        Self::GrpcGoOneThread,
        Self::GrpcCpp,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Polyrpc => "polyrpc",
            Self::Tonic => "tonic",
            Self::TonicOneThread => "tonic, 1 thread",
            Self::GrpcGo => "grpc-go",
            Self::GrpcGoOneThread => "grpc-go, 1 thread",
            Self::GrpcCpp => "gRPC C++",
        }
    }

    /// Starts the server and waits until it listens; its greeter adds `heavy` numbers in each call.
    pub(super) fn start(self, heavy: u64) -> io::Result<(Child, SocketAddr)> {
        let (heavy, one_thread) = (format!("--heavy={heavy}"), "--threads=1".to_owned());
        let server = match self {
            Self::Polyrpc => Child::start(&["grpc-server".to_owned(), heavy])?,
            Self::Tonic => start_foreign("tonic-server", &[heavy])?,
            Self::TonicOneThread => start_foreign("tonic-server", &[heavy, one_thread])?,
            Self::GrpcGo => start_foreign("go-server", &[heavy])?,
            Self::GrpcGoOneThread => start_foreign("go-server", &[heavy, one_thread])?,
            Self::GrpcCpp => start_foreign("cpp-server", &[heavy])?,
        };
        let Listening { address } = server.read_report(REPORT_TIMEOUT)?;
        Ok((server, address))
    }
}

/// Our own server, as the upstream of proxies.
pub(crate) struct GrpcServer {
    pub(crate) address: SocketAddr,
    _process: Child,
}

impl GrpcServer {
    pub(crate) fn start() -> io::Result<Self> {
        let (process, address) = Peer::Polyrpc.start(0)?;
        Ok(Self { address, _process: process })
    }
}

fn start_foreign(name: &str, options: &[String]) -> io::Result<Child> {
    let arguments = [&["--listen=127.0.0.1:0".to_owned()], options].concat();
    Child::start_program(&program(name), &arguments).map_err(|error| {
        io::Error::new(error.kind(), format!("{name}: {error} (is it built? bench/peers/build)"))
    })
}

/// Output directory of `bench/peers/build`.
pub(super) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/bin").join(name)
}

/// A file of the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

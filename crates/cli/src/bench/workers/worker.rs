//! `polyrpc bench worker`.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use polyrpc::layers::auth;
use polyrpc::server::{Limits, Listen};
use polyrpc::{Protocol, Server, signal};
use polyrpc_load::Rate;

use super::bounds::{AllowedTarget, Bounds};
use super::service::LoadWorkerServer;
use super::session::Worker;
use crate::bench::options::parse_positive;
use crate::failure::Failure;
use crate::terminal;
use crate::tls::ServerTlsOptions;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(in crate::bench) struct Options {
    /// Address to listen on for coordinators: host:port; port 0 selects a free one. An address other than loopback
    /// requires --tls-cert
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7000")]
    listen: String,
    /// Accept coordinators that have the token in this file, of 16 characters or more
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Allow calls to this server, as HOST:PORT or HOST:*; may be repeated
    #[arg(long, value_name = "HOST:PORT", required = true)]
    allow: Vec<AllowedTarget>,
    /// Maximum number of messages sent per second: one for each call, or all those of a client stream
    #[arg(long, value_name = "RATE", default_value = "1M")]
    max_rate: Rate,
    /// Maximum time of a load, with its warm-up
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration, default_value = "60m")]
    max_duration: Duration,
    /// Maximum number of connections to the server
    #[arg(long, value_name = "N", value_parser = parse_positive, default_value = "10000")]
    max_connections: usize,
    /// Maximum memory of a load in MiB: its messages, histograms, calls in flight and connections
    #[arg(long, value_name = "MIB", value_parser = parse_positive, default_value = "1024")]
    max_memory: usize,
    #[command(flatten)]
    proof: ServerTlsOptions,
}

/// Serves coordinators until a signal.
pub(in crate::bench) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let token = read_token(&options.token_file)?;
    let tls = options.proof.required_server()?;
    if tls.is_none() && !is_loopback(&options.listen) {
        let reason = format!(
            "{} can be reached from other machines, and a token is not sent in plaintext",
            options.listen
        );
        return Err(
            Failure::new(reason).with_hint("give it a certificate by --tls-cert, or listen on 127.0.0.1")
        );
    }
    let mut listen = Listen::on(&options.listen).protocols([Protocol::Grpc]).authenticate(auth::token(token));
    if let Some(tls) = tls {
        listen = listen.tls(tls);
    }
    let bounds = Bounds {
        allowed: options.allow.clone(),
        rate: options.max_rate,
        duration: options.max_duration,
        connections: options.max_connections,
        memory: options.max_memory.saturating_mul(1 << 20),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("start a runtime", &error))?;
    let served = runtime.block_on(serve(listen, bounds, &options.listen));
    // A load that does not end is not waited for.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(listen: Listen, bounds: Bounds, address: &str) -> Result<(), Failure> {
    let signal = signal::shutdown();
    let limits = Limits {
        connections: CONNECTIONS,
        in_flight: CONNECTIONS,
        streams: CONNECTIONS,
        ..Limits::default()
    };
    let server = Server::new().service(LoadWorkerServer::new(Worker::new(bounds))).limits(limits);
    let bound = server.bind(listen).await;
    let bound = bound.map_err(|error| Failure::system(format!("listen on {address}"), &error))?;
    let running = bound.start();
    if !terminal::print(&format!("worker on {}", running.address()))? {
        return Ok(());
    }
    signal.await;
    running.shutdown(Duration::ZERO).await;
    Ok(())
}

/// Reads a token.
pub(super) fn read_token(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::system(format!("read {}", path.display()), &error))?;
    let token = text.trim();
    match token.len() {
        16.. if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(token.to_owned()),
        16.. => Err(Failure::new(format!("the token in {} is not one word of ASCII", path.display()))),
        _ => Err(Failure::new(format!("the token in {} has fewer than 16 characters", path.display()))),
    }
}

/// Whether only this machine can reach an address.
pub(super) fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let ip = address.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| host.parse::<IpAddr>());
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Maximum of concurrent coordinators. All but one are answered that the worker is busy.
const CONNECTIONS: usize = 64;

const HELP: &str = "\
Examples:
  (umask 077; openssl rand -hex 16 > token)
  polyrpc bench worker --listen 0.0.0.0:7000 --tls-cert worker.pem --token-file token --allow bench.internal:8002
  polyrpc bench grpc://bench.internal:8002 helloworld.Greeter/SayHello '{\"name\":\"Joe\"}' --rate 1M \\
      --workers a:7000,b:7000 --worker-token-file token --worker-cacert ca.pem

A worker makes one load at a time. It sends nothing that the coordinator did not plan, calls no server that --allow does not name, \
rejects a load that exceeds a bound, and ends its load when the coordinator is gone.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_recognised() {
        for local in ["127.0.0.1:0", "localhost:7000", "[::1]:7000"] {
            assert!(is_loopback(local), "{local}");
        }
        for other in ["0.0.0.0:7000", "[::]:7000", "10.0.0.1:7000", "a:7000", "127.0.0.1.example:7000"] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}

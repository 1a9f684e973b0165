//! Calls of one path, made one after another by one thread that is both client and server: `checks/instructions.py` counts
//! their instructions by callgrind.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::future::try_join_all;
use polyrpc::discovery::List;
use polyrpc::server::Listen;

use crate::cluster::{Addresses, Authority, Caller, combinations};
use crate::scratch::Scratch;
use crate::service;

/// Options of a path.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Protocol and transport, for example `rpcx over TCP`.
    combination: String,
    /// Number of calls in flight.
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    /// Length of the text that is echoed, in bytes.
    #[arg(long, default_value_t = 32)]
    size: usize,
    /// Number of rounds: in each, every call in flight is made once.
    #[arg(long)]
    rounds: usize,
}

/// Makes the calls. One thread runs everything, so that the same work is done in the same order in each run.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(options: &Options) -> io::Result<ExitCode> {
    let chosen = combinations().into_iter().find(|combination| combination.name() == options.combination);
    let combination =
        chosen.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no combination has this name"))?;
    let folder = Scratch::new("instructions")?;
    let authority = Authority::new(folder.path())?;
    let addresses = Addresses::choose("127.0.0.1", folder.path())?;
    let tls = authority.server()?;
    let bound = service::server().bind(addresses.tcp.as_str()).await?;
    let bound = bound.and(format!("unix:{}", addresses.unix.display())).await?;
    let server = bound.and(Listen::on(&addresses.tls).tls(tls)).await?.start();

    let builder = combination.builder(List::new([combination.instance(&addresses)]), &authority.pem());
    let caller =
        combination.non_idempotent_caller(builder.timeout(CALL_TIMEOUT)).map_err(io::Error::other)?;
    let text = "x".repeat(options.size);
    for _ in 0..options.rounds {
        call(&caller, &text, options.in_flight).await.map_err(io::Error::other)?;
    }
    server.shutdown(Duration::ZERO).await;
    Ok(ExitCode::SUCCESS)
}

async fn call(caller: &Caller, text: &str, in_flight: usize) -> Result<(), String> {
    match in_flight {
        1 => caller.echo(text).await,
        _ => try_join_all((0..in_flight).map(|_| caller.echo(text))).await.map(drop),
    }
}

/// Deadline of a call: programs run 50 times as long under callgrind.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

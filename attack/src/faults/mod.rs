//! Faults of one of three servers under load, over every protocol and transport: no idempotent call may fail.

mod callers;
mod table;

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use polyrpc::discovery::List;
use rustix::process::Signal;

use self::callers::{CallResults, Callers};
use crate::cluster::{Authority, Combination, Replica, combinations, with_hedging};
use crate::scratch::Scratch;

/// Options of the table of faults.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Each fault of one server only, instead of each of the three.
    #[arg(long)]
    short: bool,
    /// Only combinations whose name contains one of these, for example `KCP`.
    combinations: Vec<String>,
}

/// Fault of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is killed, and restarted.
    Kill,
    /// It is terminated gracefully, and restarted.
    Terminate,
    /// It is suspended for a while, and keeps its connections.
    Stop,
}

impl Fault {
    const ALL: [Self; 3] = [Self::Kill, Self::Terminate, Self::Stop];

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Terminate => "SIGTERM",
            Self::Stop => "SIGSTOP",
        }
    }
}

const HOST: &str = "127.0.0.1";
/// Deadline of a call, retries included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum number of calls before the fault, during it and after it.
const CALLS_PER_PHASE: usize = 256;
/// Minimum duration of the fault.
const MIN_FAULT_DURATION: Duration = Duration::from_millis(500);
/// Runs all faults over all combinations, and prints a table.
#[tokio::main]
pub(crate) async fn run(options: &Options) -> io::Result<ExitCode> {
    let chosen: Vec<_> =
        combinations().into_iter().filter(|combination| options.selects(*combination)).collect();
    if chosen.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no combination has such a name"));
    }
    let folder = Scratch::new("faults")?;
    let authority = Authority::new(folder.path())?;
    let mut cluster = Vec::new();
    for _ in 0..3 {
        cluster.push(Replica::start(HOST, folder.path())?);
    }
    let rounds = if options.short { 1 } else { cluster.len() };
    table::head(&Fault::ALL.map(Fault::name));
    let mut failed = Vec::new();
    for (n, combination) in chosen.into_iter().enumerate() {
        let mut row = Vec::new();
        for fault in Fault::ALL {
            let mut all = CallResults::default();
            for round in 0..rounds {
                all.add(
                    call_during_fault(combination, fault, &mut cluster, (n + round) % 3, &authority).await?,
                );
            }
            row.push(all);
        }
        table::row(&combination.name(), &row);
        if row.iter().any(|made| !made.failures.is_empty()) {
            failed.push(combination.name());
        }
    }
    table::foot(&failed);
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Options {
    fn selects(&self, combination: Combination) -> bool {
        self.combinations.is_empty()
            || self.combinations.iter().any(|name| combination.name().contains(name.as_str()))
    }
}

/// Calls over one combination while one server suffers a fault; returns the calls.
async fn call_during_fault(
    combination: Combination,
    fault: Fault,
    cluster: &mut [Replica],
    index: usize,
    authority: &Authority,
) -> io::Result<CallResults> {
    let servers = List::new(cluster.iter().map(|replica| combination.instance(&replica.addresses)));
    let mut builder = combination.builder(servers, &authority.pem());
    if fault == Fault::Stop {
        builder = with_hedging(builder);
    }
    let caller = combination.caller(builder, TIMEOUT).map_err(io::Error::other)?;
    let callers = Callers::start(&caller);
    callers.wait_for(CALLS_PER_PHASE).await;
    let replica = &mut cluster[index];
    let begun = Instant::now();
    match fault {
        Fault::Kill => replica.send(Signal::KILL)?,
        Fault::Terminate => replica.send(Signal::TERM)?,
        Fault::Stop => replica.send(Signal::STOP)?,
    }
    callers.wait_for(CALLS_PER_PHASE).await;
    tokio::time::sleep(MIN_FAULT_DURATION.saturating_sub(begun.elapsed())).await;
    match fault {
        Fault::Stop => replica.send(Signal::CONT)?,
        Fault::Kill | Fault::Terminate => tokio::task::block_in_place(|| replica.restart())?,
    }
    callers.wait_for(CALLS_PER_PHASE).await;
    Ok(callers.stop().await)
}

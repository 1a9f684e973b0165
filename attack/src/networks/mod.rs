//! Calls over bad networks. `networks.py` emulates loss, delay, reordering, duplication and cuts; it runs this program
//! in one network namespace and the server in another.

mod callers;
mod goodput;
mod link;
mod quinn_echo;
mod scenario;

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use polyrpc::discovery::List;
use rustix::process::Signal;

use self::callers::{Callers, Outcomes};
use self::goodput::Servers;
use self::link::Link;
use self::quinn_echo::Peer;
pub(crate) use self::quinn_echo::{Options as EchoOptions, serve as serve_echo};
use self::scenario::{Scenario, scenarios};
use crate::cluster::{Authority, Combination, Replica, combinations};
use crate::scratch::Scratch;

/// Options of the calls over bad networks.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A few seconds of each network instead of ten.
    #[arg(long)]
    short: bool,
    /// Only networks whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Network namespace of the server; this program runs in another one.
    #[arg(long)]
    namespace: String,
}

/// Address of the server in its namespace; `networks.py` assigns it.
const HOST: &str = "10.77.0.2";
/// Address of quinn's echo server.
const QUINN: &str = "10.77.0.2:7005";
/// Time in which a call over every combination is answered once a network is healed.
const RECOVERY: Duration = Duration::from_secs(2);
/// How much later than its deadline a call may end.
const MAX_LATENESS: Duration = Duration::from_millis(50);
/// Time for the first call over a combination: connections, handshakes.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs all scenarios, and prints a row for each.
#[tokio::main]
pub(crate) async fn run(options: &Options) -> io::Result<ExitCode> {
    let folder = Scratch::new("networks")?;
    let authority = Authority::new(folder.path())?;
    let mut server = Replica::start_in(&options.namespace, HOST, folder.path())?;
    let mut link = Link::default();
    println!(
        "{:<26} {:>6} {:>6} {:>8} {:>8} {:>9} {:>12}  verdict",
        "network", "calls", "failed", "p50 ms", "late ms", "repeated", "recovery ms"
    );
    let mut is_passed = true;
    for scenario in scenarios() {
        if options.only.as_ref().is_some_and(|only| !scenario.name.contains(only.as_str())) {
            continue;
        }
        is_passed &= run_scenario(&scenario, options.short, &mut server, &mut link, &authority).await?;
    }
    println!(
        "\nok: no call ends later than its deadline and {} ms; on a network that is never cut none fails;",
        MAX_LATENESS.as_millis()
    );
    println!(
        "    once it is healed every combination answers within {} s; no call was executed twice.",
        RECOVERY.as_secs()
    );
    let quinn = Peer::start_in(&options.namespace, QUINN)?;
    let servers = Servers { replica: &server, quinn: &quinn, authority: &authority };
    is_passed &= goodput::compare(options.short, options.only.as_deref(), &servers, &mut link).await?;
    Ok(if is_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every protocol over TCP, and two over each other transport that crosses a network.
fn network_combinations() -> impl Iterator<Item = Combination> {
    combinations().into_iter().filter(|combination| {
        let name = combination.name();
        let (protocol, carrier) = name.split_once(" over ").unwrap_or_default();
        let is_other = ["TLS", "WebSocket", "KCP", "QUIC"].contains(&carrier);
        carrier == "TCP" || (is_other && ["rpcx", "gRPC"].contains(&protocol))
    })
}

async fn run_scenario(
    scenario: &Scenario,
    short: bool,
    server: &mut Replica,
    link: &mut Link,
    authority: &Authority,
) -> io::Result<bool> {
    let repeated = server.snapshot()?.repeated;
    link.emulate(&scenario.network)?;
    let list = || {
        network_combinations()
            .map(|combination| (combination, List::new([combination.instance(&server.addresses)])))
    };
    let mut clients = Vec::new();
    for (combination, servers) in list() {
        // Not idempotent: a call that is executed twice was sent twice.
        let builder = combination.builder(servers, &authority.pem()).timeout(scenario.deadline);
        clients.push((combination, combination.non_idempotent_caller(builder).map_err(io::Error::other)?));
    }
    let mut callers = Callers::start(&clients, scenario.deadline);
    if callers.wait_for_every_way(FIRST_CALL_TIMEOUT).await.is_none() {
        let outcomes = callers.stop().await;
        println!("{:<26} FAIL: never answered: {}", scenario.name, outcomes.last_to_answer);
        return Ok(false);
    }
    tokio::time::sleep(if short { scenario.length / 5 } else { scenario.length }).await;
    let mut recovery = None;
    if let Some(cut) = scenario.cut {
        link.emulate(&scenario.cut_network())?;
        tokio::time::sleep(cut).await;
        if scenario.restarts {
            // The server's last messages are lost when it dies.
            server.send(Signal::KILL)?;
            tokio::task::block_in_place(|| server.restart())?;
        }
        link.emulate(&scenario.network)?;
        let healed = Instant::now();
        recovery = Some(callers.wait_for_every_way(FIRST_CALL_TIMEOUT).await.map(|()| healed.elapsed()));
    }
    let outcomes = callers.stop().await;
    let repeated = server.snapshot()?.repeated.saturating_sub(if scenario.restarts { 0 } else { repeated });
    Ok(report(scenario, &outcomes, repeated, recovery))
}

/// Prints the row; returns whether everything is within its limit. `recovery` is `Some(None)` if a combination did not
/// recover.
fn report(
    scenario: &Scenario,
    outcomes: &Outcomes,
    repeated: u64,
    recovery: Option<Option<Duration>>,
) -> bool {
    let mut failures = Vec::new();
    let late = outcomes.late.saturating_sub(outcomes.timers_late);
    if late > MAX_LATENESS {
        failures.push(format!("{} ended {late:?} after its deadline", outcomes.latest));
    }
    if repeated > 0 {
        failures.push(format!("{repeated} calls were executed twice"));
    }
    if scenario.cut.is_none() && outcomes.failed > 0 {
        failures.push(format!("failed: {}", outcomes.failure.as_deref().unwrap_or_default()));
    }
    if recovery.is_some_and(|took| took.is_none_or(|took| took > RECOVERY)) {
        failures.push(format!("the last to recover: {}", outcomes.last_to_answer));
    }
    if outcomes.calls == outcomes.failed {
        failures.push("no call was answered".to_owned());
    }
    println!(
        "{:<26} {:>6} {:>6} {:>8.1} {:>8.1} {:>9} {:>12}  {}",
        scenario.name,
        outcomes.calls,
        outcomes.failed,
        outcomes.median.as_secs_f64() * 1e3,
        late.as_secs_f64() * 1e3,
        repeated,
        match recovery {
            None => "-".to_owned(),
            Some(None) => "never".to_owned(),
            Some(Some(took)) => format!("{:.0}", took.as_secs_f64() * 1e3),
        },
        if failures.is_empty() { "ok" } else { "FAIL" },
    );
    for failure in &failures {
        println!("{:>26} FAIL: {failure}", "");
    }
    failures.is_empty()
}

//! Goodput: bytes per second that arrive, of echoes over one connection. KCP and QUIC are compared with quinn by itself
//! on the same network, one after the other.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polyrpc::discovery::List;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::link::{Link, Network};
use super::quinn_echo::{ByteCounter, IN_FLIGHT, LENGTH, Peer};
use crate::cluster::{Authority, Combination, Replica, combinations};

/// Networks with losses, where congestion control decides. The delay is that of one direction.
const NETWORKS: [(&str, Network); 2] =
    [("loss of 1 %, RTT 50 ms", lossy(0.01)), ("loss of 5 %, RTT 50 ms", lossy(0.05))];

const fn lossy(loss: f64) -> Network {
    Network { loss, delay: 0.025, jitter: 0.0, reorder: 0.0, duplicate: 0.0, rate: 0, cut: false }
}

/// Minimum share of quinn's goodput.
const SHARE: f64 = 0.7;
/// Time after the first echo in which windows grow.
const WARM_UP: Duration = Duration::from_secs(1);
/// Deadline of an echo.
const DEADLINE: Duration = Duration::from_secs(60);

/// The transports whose goodput is measured.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Quinn,
    Combination(Combination),
}

/// Where the subjects are called.
pub(super) struct Servers<'a> {
    pub(super) replica: &'a Replica,
    pub(super) quinn: &'a Peer,
    pub(super) authority: &'a Authority,
}

/// Measures every combination on every network whose name contains `only`, and prints a row for each. Returns whether
/// all reach their share.
///
/// # Errors
///
/// If an echo fails.
pub(super) async fn compare(
    short: bool,
    only: Option<&str>,
    servers: &Servers<'_>,
    link: &mut Link,
) -> io::Result<bool> {
    let (rounds, window) = if short { (2, Duration::from_secs(3)) } else { (4, Duration::from_secs(8)) };
    let combinations: Vec<_> = combinations()
        .into_iter()
        .filter(|combination| ["rpcx over KCP", "rpcx over QUIC"].contains(&&*combination.name()))
        .collect();
    let is_chosen = |name: &str| only.is_none_or(|only| name.contains(only));
    let mut is_passed = true;
    println!("\n{:<26} {:<16} {:>8} {:>8} {:>9}  verdict", "goodput", "", "kB/s", "quinn", "of quinn");
    for (name, network) in NETWORKS.into_iter().filter(|(name, _)| is_chosen(name)) {
        link.emulate(&network)?;
        let compared = combinations.iter().copied().map(Subject::Combination);
        let subjects: Vec<_> = [Subject::Quinn].into_iter().chain(compared).collect();
        let mut rates = vec![0.0; subjects.len()];
        for _ in 0..rounds {
            for (subject, rate) in subjects.iter().zip(&mut rates) {
                *rate += measure(*subject, servers, window).await? / f64::from(rounds);
            }
        }
        let quinn = rates[0];
        for (combination, rate) in combinations.iter().zip(&rates[1..]) {
            let share = rate / quinn;
            let verdict = if share >= SHARE { "ok" } else { "FAIL" };
            is_passed &= share >= SHARE;
            println!(
                "{name:<26} {:<16} {:>8.0} {:>8.0} {share:>9.2}  {verdict}",
                combination.name(),
                rate / 1e3,
                quinn / 1e3
            );
        }
    }
    println!("\nok: at least {:.0} % of quinn's goodput on the same network.", SHARE * 100.0);
    Ok(is_passed)
}

/// Returns the bytes a second that arrive within the window.
async fn measure(subject: Subject, servers: &Servers<'_>, window: Duration) -> io::Result<f64> {
    let arrived = ByteCounter::default();
    let mut tasks = JoinSet::new();
    match subject {
        Subject::Quinn => _ = tasks.spawn(servers.quinn.connect().await?.echo(arrived.clone())),
        Subject::Combination(combination) => call(combination, servers, &arrived, &mut tasks)?,
    }
    let counted = async {
        while arrived.load(Ordering::Relaxed) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        sleep(WARM_UP).await;
        let (begun, before) = (Instant::now(), arrived.load(Ordering::Relaxed));
        sleep(window).await;
        (arrived.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64()
    };
    tokio::select! {
        rate = counted => Ok(rate),
        // They only end if they fail.
        Some(ended) = tasks.join_next() => match ended.map_err(io::Error::other)? {
            Err(error) => Err(io::Error::other(format!("{subject:?}: {error}"))),
            Ok(()) => Err(io::Error::other(format!("{subject:?} has ended"))),
        },
    }
}

fn call(
    combination: Combination,
    servers: &Servers<'_>,
    arrived: &ByteCounter,
    tasks: &mut JoinSet<io::Result<()>>,
) -> io::Result<()> {
    let list = List::new([combination.instance(&servers.replica.addresses)]);
    let builder = combination.builder(list, &servers.authority.pem()).timeout(DEADLINE);
    let caller = combination.non_idempotent_caller(builder).map_err(io::Error::other)?;
    for _ in 0..IN_FLIGHT {
        let (caller, arrived) = (caller.clone(), arrived.clone());
        tasks.spawn(async move {
            let text = "x".repeat(LENGTH);
            loop {
                caller.echo(&text).await.map_err(io::Error::other)?;
                arrived.fetch_add(LENGTH as u64, Ordering::Relaxed);
            }
        });
    }
    Ok(())
}

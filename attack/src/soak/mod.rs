//! A cluster under mixed load for minutes or hours, in which no resource may grow and no call may fail.
//!
//! 1. [`traffic`] calls over every combination all the time, and makes new connections; [`registry`] keeps changing its
//!    answers; [`misbehaviour`] has the slow and broken clients among the good ones.
//! 2. Of three servers, two are restarted in turn, and certificates are replaced. The third runs all the time: a leak shows
//!    in it, and in this process, which is all clients.
//! 3. [`sample`] reads both each second, [`verdict`] judges the samples, [`report`] writes them.

mod latencies;
mod misbehaviour;
mod registry;
mod report;
mod sample;
mod traffic;
mod trend;
mod verdict;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use polyrpc::discovery::Instance;
use rustix::process::Signal;
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::registry::FlappingRegistry;
use self::report::{Events, Report};
use self::sample::Sampler;
use self::traffic::Traffic;
use crate::cluster::{Addresses, Authority, Combination, Replica, combinations};
use crate::scratch::Scratch;

/// Options of a soak.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long it runs.
    #[arg(default_value_t = 10.0)]
    minutes: f64,
    /// Folder for `soak.json` and `soak.html`.
    #[arg(long, default_value = "target/soak")]
    out: PathBuf,
    /// Seed of everything that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Interval between restarts, each of another server. Shorter in a run of few minutes, so that it contains several.
const RESTART: Duration = Duration::from_secs(60);
/// Interval between new certificates.
const ROTATION: Duration = Duration::from_secs(20);
/// Time for everything to be released after the last call.
const REST: Duration = Duration::from_secs(60);

/// Runs a soak.
#[tokio::main]
pub(crate) async fn run(options: &Options) -> io::Result<ExitCode> {
    if !(options.minutes > 0.0 && options.minutes <= MAX_MINUTES) {
        let text = format!("expected a number of minutes above 0 and up to {MAX_MINUTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    std::fs::create_dir_all(&options.out)?;
    let folder = Scratch::new("soak")?;
    let authority = Authority::new(folder.path())?;
    let lasting = Replica::start(HOST, folder.path())?;
    let mut restarted = [Replica::start(HOST, folder.path())?, Replica::start(HOST, folder.path())?];
    let addresses: Vec<_> =
        [&lasting, &restarted[0], &restarted[1]].map(|replica| replica.addresses.clone()).into();

    println!(
        "soak: {} combinations to call three servers, for {:.1} minutes",
        combinations().len(),
        options.minutes
    );
    let sampler = Sampler::start(lasting)?;
    let mut traffic = Traffic::start(&addresses, &authority.pem(), options.seed)?;
    let misbehaviour = misbehaviour::MisbehavingClients::start(addresses[0].clone(), options.seed);
    let events = restart_and_rotate(length, &authority, &mut restarted).await?;
    let misbehaved = misbehaviour.stop().await;
    let calls = traffic.stop().await;
    drop(restarted);
    let at_rest = sampler.wait_for_rest(REST).await;
    let samples = sampler.stop();

    let report = Report::new(options, samples, at_rest, calls, misbehaved, events);
    report.write(&options.out)?;
    println!("{report}");
    println!("written: {0}/soak.json {0}/soak.html", options.out.display());
    Ok(if report.is_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A week.
const MAX_MINUTES: f64 = 7.0 * 24.0 * 60.0;
const HOST: &str = "127.0.0.1";

/// Restarts servers and replaces certificates until the time is over.
async fn restart_and_rotate(
    length: Duration,
    authority: &Authority,
    restarted: &mut [Replica; 2],
) -> io::Result<Events> {
    let begun = Instant::now();
    let mut events = Events::default();
    let each = |usual: Duration| usual.min(length / 5);
    let mut restarts = interval(each(RESTART));
    let mut rotations = interval(each(ROTATION));
    for interval in [&mut restarts, &mut rotations] {
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval.reset();
    }
    let over = sleep(length);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => break,
            _ = rotations.tick() => {
                authority.rotate()?;
                events.rotations += 1;
            }
            _ = restarts.tick() => {
                let replica = &mut restarted[events.restarts_s.len() % 2];
                events.restarts_s.push(begun.elapsed().as_secs_f64());
                replica.send(Signal::TERM)?;
                tokio::task::block_in_place(|| replica.restart())?;
            }
        }
    }
    events.sets = FlappingRegistry::sets();
    Ok(events)
}

/// The servers as a combination reaches them.
fn instances(addresses: &[Addresses], combination: Combination) -> Vec<Instance> {
    addresses.iter().map(|addresses| combination.instance(addresses)).collect()
}

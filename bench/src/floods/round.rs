//! One round: a server, the well-behaved client and an attacker, each a separate process, for some seconds.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::attack::Attack;
use super::attacker::{AttackResult, AttackerOptions};
use super::victim::{VictimOptions, VictimResult};
use crate::exchange::Protocol;
use crate::measure;
use crate::process::{Child, Listening, Ready};
use crate::run::REPORT_TIMEOUT;
use crate::subject::{ServerKind, ServerOptions};

/// Result of a round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Round {
    pub(super) served: VictimResult,
    /// `None` without an attack.
    #[serde(rename = "siege")]
    pub(super) attack_result: Option<AttackResult>,
    /// Maximum growth of the server's resident memory.
    pub(super) grown_kib: u64,
    /// Share of its core used by the server.
    pub(super) cpu: f64,
}

/// Runs the well-behaved client next to `attack`, or alone.
pub(super) fn run(attack: Option<&Attack>, window: Duration) -> io::Result<Round> {
    let cores = Cores::current()?;
    let (mut server, Listening { address }) = serve(cores.server)?;
    let milliseconds = window.as_millis() as u64;

    let victim = VictimOptions { connect: address, window: milliseconds, core: Some(cores.victim) };
    let mut victim = Child::start(&victim.to_arguments())?;
    let Ready {} = victim.read_report(REPORT_TIMEOUT)?;
    let resident_before = measure::resident_kib_of(server.id())?;

    let mut attacker =
        attack.map(|attack| start(attack, address, milliseconds, cores.attacker)).transpose()?;
    let cpu_before = server.resource_usage()?.cpu_ns;
    if let Some(attacker) = &mut attacker {
        attacker.send_go()?;
    }
    victim.send_go()?;
    let served = victim.read_report(window + REPORT_TIMEOUT)?;
    let attack_result = attacker.map(|attacker| attacker.read_report(window + REPORT_TIMEOUT)).transpose()?;
    let peak_kib = measure::peak_resident_kib_of(server.id())?;
    let cpu_ns = server.resource_usage()?.cpu_ns - cpu_before;
    Ok(Round {
        served,
        attack_result,
        grown_kib: peak_kib.saturating_sub(resident_before),
        cpu: cpu_ns as f64 / window.as_nanos() as f64,
    })
}

fn serve(core: usize) -> io::Result<(Child, Listening)> {
    let options = ServerOptions {
        kind: ServerKind::Polyrpc,
        listen: ([127, 0, 0, 1], 0).into(),
        // The server detects gRPC by itself.
        protocol: Protocol::BaiduStd,
        payload: 0,
        core: Some(core),
    };
    let server = Child::start(&options.to_arguments())?;
    let listening = server.read_report(REPORT_TIMEOUT)?;
    Ok((server, listening))
}

fn start(attack: &Attack, connect: SocketAddr, window: u64, core: usize) -> io::Result<Child> {
    let options = AttackerOptions { attack: attack.name.to_owned(), connect, window, core: Some(core) };
    let attacker = Child::start(&options.to_arguments())?;
    let Ready {} = attacker.read_report(REPORT_TIMEOUT)?;
    Ok(attacker)
}

/// Assignment of cores. The server has its own core; the others share one if there are no more.
struct Cores {
    server: usize,
    attacker: usize,
    victim: usize,
}

impl Cores {
    fn current() -> io::Result<Self> {
        let mut cores = measure::cores()?.into_iter().rev();
        let server = cores.next().ok_or_else(|| io::Error::other("this process may run on no core"))?;
        let attacker = cores.next().unwrap_or(server);
        Ok(Self { server, attacker, victim: cores.next().unwrap_or(attacker) })
    }
}

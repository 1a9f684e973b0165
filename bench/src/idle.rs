//! Resident memory of an idle connection in a server.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::exchange::Protocol;
use crate::process::{Child, Ready, ResourceUsage};
use crate::run::{self, REPORT_TIMEOUT};
use crate::subject::{ClientOptions, Shape, Subject};

/// Connections that are opened and then idle.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Quiet {
    pub(crate) protocol: Protocol,
    /// [`Shape::Silent`] or [`Shape::Idle`].
    pub(crate) shape: Shape,
}

/// The first call of an idle connection, if it makes one.
const PAYLOAD: usize = 32;

/// Opens the connections and returns the server's growth per connection in KiB.
pub(crate) fn kib_per_connection(subject: Subject, quiet: Quiet) -> io::Result<f64> {
    let setup = run::setup(subject, quiet.shape)?;
    let (mut server, listening) = run::start_server(setup, quiet.protocol, PAYLOAD, None)?;
    let before = server.resource_usage()?;
    let client = Child::start(
        &ClientOptions {
            kind: setup.client,
            connect: listening.address,
            protocol: quiet.protocol,
            floor_frames: setup.floor_frames,
            payload: PAYLOAD,
            connections: setup.connections,
            in_flight: setup.in_flight,
            warm_up: 0,
            window: 0,
            core: None,
        }
        .to_arguments(),
    )?;
    let Ready {} = client.read_report(REPORT_TIMEOUT)?;

    let after = wait_until_stable(&mut server, before.open_files + setup.connections)?;
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    Ok(grown as f64 / setup.connections as f64)
}

/// Waits until the server has accepted every connection and its memory is stable.
fn wait_until_stable(server: &mut Child, open_files: usize) -> io::Result<ResourceUsage> {
    const PAUSE: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + REPORT_TIMEOUT;
    let mut last = server.resource_usage()?;
    loop {
        thread::sleep(PAUSE);
        let now = server.resource_usage()?;
        if now.open_files >= open_files && now.resident_kib == last.resident_kib {
            return Ok(now);
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not come to rest"));
        }
        last = now;
    }
}

//! Resident memory of an idle connection in a server.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::exchange::Protocol;
use crate::process::{Child, Ready, Vitals};
use crate::run::{self, PATIENCE};
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
    let cast = run::cast(subject, quiet.shape)?;
    let (mut server, listening) = run::start_server(cast, quiet.protocol, PAYLOAD, None)?;
    let before = server.vitals()?;
    let client = Child::start(
        &ClientOptions {
            kind: cast.client,
            connect: listening.address,
            protocol: quiet.protocol,
            floor_frames: cast.floor_frames,
            payload: PAYLOAD,
            connections: cast.connections,
            in_flight: cast.in_flight,
            warm_up: 0,
            window: 0,
            core: None,
        }
        .to_arguments(),
    )?;
    let Ready {} = client.read_report(PATIENCE)?;

    let after = settle(&mut server, before.open_files + cast.connections)?;
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    Ok(grown as f64 / cast.connections as f64)
}

/// Waits until the server has accepted every connection and its memory is stable.
fn settle(server: &mut Child, open_files: usize) -> io::Result<Vitals> {
    const PAUSE: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + PATIENCE;
    let mut last = server.vitals()?;
    loop {
        thread::sleep(PAUSE);
        let now = server.vitals()?;
        if now.open_files >= open_files && now.resident_kib == last.resident_kib {
            return Ok(now);
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not come to rest"));
        }
        last = now;
    }
}

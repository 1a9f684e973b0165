use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::Server;
use crate::runtime::AbortOnDrop;

/// Reads a server's files anew whenever they change.
///
/// Their times are looked at, now and then: that needs nothing of the system, works for links that are turned to
/// other files and on file systems over a network.
pub(super) async fn watch(server: Server, every: Duration) {
    let mut interval = interval(every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        interval.tick().await;
        let looking = server.clone();
        // A file system may take its time.
        let looked =
            AbortOnDrop::from(spawn_blocking(move || looking.is_stale().then(|| looking.reload()))).await;
        let Ok(looked) = looked else { return };
        let Some(result) = looked else { continue };
        // A certificate may be here and its key not yet: it is tried again, but one trouble is told once.
        let trouble = result.as_ref().err().map(|error| error.message().to_owned());
        if trouble.is_none() || trouble != last {
            server.report().tell(&result);
        }
        last = trouble;
    }
}

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::Server;
use super::last_error::LastError;
use crate::runtime::AbortOnDrop;

/// Reloads a server's files whenever they change.
///
/// Polls their modification times: that needs no system facility, and works for changed symbolic links and on network
/// file systems.
pub(super) async fn watch(server: Server, every: Duration) {
    let mut interval = interval(every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = LastError::default();
    loop {
        interval.tick().await;
        let looking = server.clone();
        // The file system may block.
        let looked =
            AbortOnDrop::from(spawn_blocking(move || looking.is_stale().then(|| looking.reload()))).await;
        let Ok(looked) = looked else { return };
        let Some(result) = looked else { continue };
        if last.is_new(&result) {
            server.report().report(&result);
        }
    }
}

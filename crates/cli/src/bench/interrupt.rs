//! Ctrl-C and SIGTERM while a load runs.

use std::process;
use std::thread;

use polyrpc::signal;
use polyrpc_load::Stop;
use tokio::runtime::Builder;

use super::process_group;
use crate::failure::Failure;

/// Installs the signal handlers. The first signal ends the load early, the second ends the program, and those that it
/// has started as process groups.
pub(super) fn watch() -> Result<Stop, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("start a runtime", &error))?;
    let first = {
        let _inside = runtime.enter();
        signal::shutdown()
    };
    let stop = Stop::default();
    let stopped = stop.clone();
    thread::spawn(move || {
        runtime.block_on(async {
            first.await;
            stopped.stop();
            signal::shutdown().await;
        });
        let _nothing_starts = process_group::kill_all();
        process::exit(INTERRUPTED);
    });
    Ok(stop)
}

/// Exit code that shells report for a program ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

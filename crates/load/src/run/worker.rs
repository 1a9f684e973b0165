//! A thread with its own connections, calls and histograms.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use super::assignment::{Assignment, system};
use super::{RunError, blocking};
use crate::engine::driver::Window;
use crate::engine::record::ThreadRecord;
use crate::engine::slots::Wakeups;
use crate::plan::Pacing;

/// A running thread.
pub(super) struct Worker {
    pub(super) wakeups: Arc<Wakeups>,
    /// Number of records of seconds that it reports.
    pub(super) records: usize,
    connected: Receiver<Result<(), RunError>>,
    start: Sender<Window>,
    thread: JoinHandle<Result<ThreadRecord, RunError>>,
}

impl Worker {
    pub(super) fn spawn(assignment: Assignment) -> Result<Self, RunError> {
        let wakeups = Arc::new(Wakeups::default());
        let (ready, connected) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let work = {
            let wakeups = wakeups.clone();
            move || match assignment.plan.pacing {
                Pacing::Closed { blocking: true, .. } => {
                    blocking::call(&assignment, &ready, &started, &wakeups)
                }
                _ => assignment.call(&ready, &started, wakeups),
            }
        };
        let spawned = thread::Builder::new().name("load".to_owned()).spawn(work);
        let thread = spawned.map_err(|error| system("start a thread", &error))?;
        Ok(Self { wakeups, records: 1, connected, start, thread })
    }

    /// Waits until the thread has its connections.
    pub(super) fn wait_until_connected(&self) -> Result<(), RunError> {
        self.connected
            .recv()
            .unwrap_or_else(|_| Err(RunError::System("a thread of the load has ended".to_owned())))
    }

    pub(super) fn start(&self, window: Window) {
        // A thread that has ended returns its error when it is joined.
        let _ = self.start.send(window);
    }

    pub(super) fn finish(self) -> Result<ThreadRecord, RunError> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(RunError::System("a thread of the load panicked".to_owned())))
    }
}

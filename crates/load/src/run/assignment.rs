use std::sync::Arc;
use std::sync::mpsc::Sender;

use polyrpc::client::{Builder, ConnectionMode};

use super::RunError;
use crate::engine::clock::Wall;
use crate::engine::record::SecondPart;
use crate::plan::{Pacing, Plan, RunLength};
use crate::rpc::Methods;
use crate::schedule::Schedule;

/// The work of a thread.
pub(super) struct Assignment {
    pub(super) plan: Plan,
    pub(super) methods: Arc<Methods>,
    pub(super) schedule: Option<Schedule>,
    pub(super) clock: Wall,
    pub(super) report: Sender<SecondPart>,
    /// Number of the thread among those of all processes, from 0.
    pub(super) thread: usize,
    /// Number of threads of all processes.
    pub(super) threads: usize,
}

impl Assignment {
    /// Builder of a client with the plan's use of connections.
    pub(super) fn builder(&self) -> Result<Builder, RunError> {
        let builder = (self.plan.client)().map_err(RunError::Plan)?;
        let builder = builder.connection_mode(self.plan.connection_mode);
        Ok(match (self.plan.connection_mode, &self.plan.pacing) {
            (ConnectionMode::Pooled, Pacing::Closed { callers, .. }) => {
                builder.max_idle_connections(*callers)
            }
            (ConnectionMode::Pooled, Pacing::Open { .. }) => {
                builder.max_idle_connections(self.plan.max_in_flight)
            }
            _ => builder,
        })
    }

    pub(super) fn callers(&self) -> usize {
        match self.plan.pacing {
            Pacing::Closed { callers, .. } => callers,
            Pacing::Open { .. } => 0,
        }
    }

    /// Number of calls of the thread in a closed loop, if limited.
    pub(super) fn calls(&self) -> Option<u64> {
        let RunLength::Calls(calls) = self.plan.length else { return None };
        let (thread, threads) = (self.thread as u64, self.threads as u64);
        Some(calls / threads + u64::from(thread < calls % threads))
    }
}

pub(super) fn system(what: &str, error: &std::io::Error) -> RunError {
    RunError::System(format!("cannot {what}: {error}"))
}

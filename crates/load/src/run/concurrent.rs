//! Calls in a runtime of the thread, many at a time.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use polyrpc::Client;
use polyrpc::client::{Builder, ConnectionMode};
use tokio::runtime::{Builder as RuntimeBuilder, Runtime};

use super::RunError;
use super::assignment::{Assignment, system};
use crate::engine::clock::WallAlarm;
use crate::engine::driver::{ClosedLoop, Driver, OpenLoop, Pacing as EnginePacing, Window};
use crate::engine::record::{Seconds, ThreadRecord};
use crate::engine::slots::Wakeups;
use crate::plan::{Pacing, Plan};
use crate::rpc::Connections;

impl Assignment {
    /// Makes the calls of the thread in a runtime of its own.
    pub(super) fn call(
        self,
        ready: &Sender<Result<(), RunError>>,
        started: &Receiver<Window>,
        wakeups: Arc<Wakeups>,
    ) -> Result<ThreadRecord, RunError> {
        let connected = runtime().and_then(|runtime| {
            let connections = Connections::new(self.clients()?, self.methods.clone());
            runtime
                .block_on(connections.open(self.connections_per_client()))
                .map_err(|error| RunError::Connect(error.status().clone()))?;
            Ok((runtime, connections))
        });
        let (runtime, connections) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                let _ = ready.send(Err(error.clone()));
                return Err(error);
            }
        };
        let _ = ready.send(Ok(()));
        // The run was given up because another thread could not connect.
        let Ok(window) = started.recv() else { return Ok(ThreadRecord::new(0)) };

        let record = ThreadRecord::new(self.methods.len());
        let seconds = Seconds::new(window.opens, self.report.clone());
        let mix = self.methods.mix().clone();
        let pacing = self.pacing();
        let most = Plan::share(self.plan.max_in_flight, self.thread, self.threads);
        let clock = self.clock;
        drop(self);
        // A task, not the future of `block_on`: waking that one costs a system call.
        let calls = runtime.spawn(async move {
            let alarm = WallAlarm::new(clock)?;
            let call = move |index, slot| connections.clone().call(index, slot);
            let (clocks, what) = ((clock, alarm), (call, mix));
            let mut driver = Driver::new(clocks, what, pacing, window, most, wakeups, (record, seconds));
            poll_fn(|cx| driver.poll(cx)).await;
            Ok(driver.finish())
        });
        let ended = runtime.block_on(calls);
        ended
            .map_err(|_| RunError::System("the calls of a thread panicked".to_owned()))?
            .map_err(|error: std::io::Error| system("create a timer", &error))
    }

    fn clients(&self) -> Result<Vec<Client>, RunError> {
        let plan = &self.plan;
        let count = match plan.connection_mode {
            ConnectionMode::Shared => Plan::share(plan.connections, self.thread, self.threads),
            _ => 1,
        };
        let build =
            |builder: Builder| builder.build().map_err(|error| RunError::Connect(error.status().clone()));
        (0..count).map(|_| self.builder().and_then(build)).collect()
    }

    /// Callers of a closed loop with a pool need a connection each; how many an open loop needs shows when it runs.
    fn connections_per_client(&self) -> usize {
        match (self.plan.connection_mode, &self.plan.pacing) {
            (ConnectionMode::Pooled, Pacing::Closed { callers, .. }) => {
                Plan::share(*callers, self.thread, self.threads)
            }
            _ => 1,
        }
    }

    fn pacing(&self) -> EnginePacing {
        let (thread, threads) = (self.thread, self.threads);
        match (&self.plan.pacing, &self.schedule) {
            (Pacing::Open { profile, .. }, Some(schedule)) => {
                let warmup = schedule.warmup(self.plan.warmup).part(thread, threads);
                let rate = profile.highest_rate() / threads as f64;
                let gather = if rate > GATHER_ABOVE { GATHER } else { 0 };
                EnginePacing::Open(OpenLoop::new(warmup, schedule.part(thread, threads), gather))
            }
            _ => {
                let callers = Plan::share(self.callers(), thread, threads);
                EnginePacing::Closed(ClosedLoop::new(callers, self.calls(), thread as u64, threads as u64))
            }
        }
    }
}

/// A runtime for this thread. One thread reads and writes its connections: more would only add context switches.
fn runtime() -> Result<Runtime, RunError> {
    let built = RuntimeBuilder::new_current_thread().enable_all().build();
    built.map_err(|error| system("start a runtime", &error))
}

/// Rate of a thread, in calls per second, above which calls are gathered.
const GATHER_ABOVE: f64 = 100_000.0;
/// Maximum time for which a due call waits for others, in nanoseconds, so that they are sent in one write.
const GATHER: u64 = 20_000;

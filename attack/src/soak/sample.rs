//! Resources used by the server that is never restarted and by this process, each second.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::runtime::Handle;

use crate::cluster::Replica;
use crate::measure::{Memory, descriptors};

/// Resources of both processes at one time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Sample {
    /// Seconds since the start.
    pub(crate) at_s: f64,
    pub(crate) server: Usage,
    pub(crate) client: Usage,
    /// Of the server: its connections, its calls and streams in flight, and the bytes that its budget counts.
    pub(crate) connections: usize,
    pub(crate) in_flight: usize,
    pub(crate) budget: usize,
    /// Calls that the server has started so far.
    pub(crate) started: u64,
}

/// Resources of a process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Usage {
    /// Resident bytes.
    pub(crate) resident: usize,
    pub(crate) descriptors: usize,
    /// Tasks of its runtime.
    pub(crate) tasks: usize,
}

/// Resources left after the last client.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct AtRest {
    pub(crate) before: Sample,
    pub(crate) after: Sample,
    /// Time until everything was released; the whole time that was allowed if it was not.
    pub(crate) took_s: f64,
}

/// Interval between samples.
const PERIOD: Duration = Duration::from_secs(1);
/// Allowed growth of a server's descriptors and tasks since before its first call.
const MORE: usize = 4;

impl AtRest {
    /// Whether nothing is left of the clients.
    pub(crate) fn is_clean(&self) -> bool {
        let Self { before, after, .. } = self;
        let is_back = |before: Usage, after: Usage| {
            after.descriptors <= before.descriptors + MORE && after.tasks <= before.tasks + MORE
        };
        after.connections == 0
            && after.in_flight == 0
            && is_back(before.server, after.server)
            && is_back(before.client, after.client)
    }
}

/// Takes samples on a separate thread, until it is stopped.
pub(crate) struct Sampler {
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<io::Result<()>>,
}

impl Sampler {
    /// Takes the first sample, then one each second.
    pub(crate) fn start(mut server: Replica) -> io::Result<Self> {
        let (begun, runtime) = (Instant::now(), Handle::current());
        let first = Sample::take(&mut server, &runtime, begun)?;
        let samples = Arc::new(Mutex::new(vec![first]));
        let (stop, stopped) = mpsc::channel();
        let taken = samples.clone();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let sample = Sample::take(&mut server, &runtime, begun)?;
                lock(&taken).push(sample);
            }
            Ok(())
        });
        Ok(Self { samples, stop, thread })
    }

    /// Waits until nothing is left of the clients, but not longer than `max`.
    pub(crate) async fn wait_for_rest(&self, max: Duration) -> AtRest {
        let begun = Instant::now();
        loop {
            tokio::time::sleep(PERIOD).await;
            let samples = lock(&self.samples);
            let (before, after) = (samples[0], samples[samples.len() - 1]);
            let rest = AtRest { before, after, took_s: begun.elapsed().as_secs_f64() };
            if rest.is_clean() || begun.elapsed() >= max || self.thread.is_finished() {
                return rest;
            }
        }
    }

    /// Stops, and returns all samples. If the server stopped answering, the last one is that before.
    pub(crate) fn stop(self) -> Vec<Sample> {
        // The thread may have ended: the server did.
        let _ = self.stop.send(());
        if let Ok(Err(error)) = self.thread.join() {
            eprintln!("the server no longer answers: {error}");
        }
        std::mem::take(&mut *lock(&self.samples))
    }
}

impl Sample {
    fn take(server: &mut Replica, runtime: &Handle, begun: Instant) -> io::Result<Self> {
        let snapshot = server.snapshot()?;
        let usage = |process: u32, tasks: usize| {
            let resident = Memory::of_process(process).resident();
            Ok::<_, io::Error>(Usage { resident, descriptors: descriptors(process)?, tasks })
        };
        Ok(Self {
            at_s: begun.elapsed().as_secs_f64(),
            server: usage(server.id(), snapshot.tasks)?,
            client: usage(std::process::id(), runtime.metrics().num_alive_tasks())?,
            connections: snapshot.connections,
            in_flight: snapshot.in_flight,
            budget: snapshot.budget,
            started: snapshot.started,
        })
    }
}

fn lock(samples: &Mutex<Vec<Sample>>) -> MutexGuard<'_, Vec<Sample>> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

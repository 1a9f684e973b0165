//! One load of a worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc::streaming::Sender;
use polyrpc::{Result, Status, Streaming};
use polyrpc_load::{Outcome, Plan, PlanPart, ReadyRun, RunError, SecondPart, Stop};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{interval, timeout};

use super::bounds::Bounds;
use super::message::{Command, Report};
use super::service::LoadWorker;

/// A process that makes loads for coordinators, one at a time.
pub(super) struct Worker {
    bounds: Arc<Bounds>,
    slot: Arc<Semaphore>,
}

impl Worker {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds: Arc::new(bounds), slot: Arc::new(Semaphore::new(1)) }
    }
}

impl LoadWorker for Worker {
    async fn load(&self, commands: Streaming<Command>) -> Result<Streaming<Report>> {
        let permit = self.slot.clone().try_acquire_owned();
        let permit =
            permit.map_err(|_| Status::resource_exhausted("this worker is busy with another load"))?;
        let bounds = self.bounds.clone();
        Ok(Streaming::produce(move |reports| async move {
            Session { commands, reports }.run(&bounds, Arc::new(permit)).await
        }))
    }
}

/// The conversation with a coordinator.
struct Session {
    commands: Streaming<Command>,
    reports: Sender<Report>,
}

/// Ends a load early when the conversation ends, in whatever way.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Session {
    async fn run(mut self, bounds: &Bounds, permit: Arc<OwnedSemaphorePermit>) -> Result<()> {
        let Command::Prepare(message) = self.next_command().await? else {
            return Err(Status::invalid_argument("the first command prepares a load").into());
        };
        let (plan, part) = bounds.accept(*message)?;
        let ready = connect(plan, part, permit.clone()).await?;
        send_report(&self.reports, Report::Ready(ready.threads() as u64)).await?;
        let Some(delay) = self.wait_for_start().await? else { return Ok(()) };
        let Self { commands, reports } = self;
        let stop = Stop::default();
        let _ends_with_this = StopOnDrop(stop.clone());
        let (parts, load) = start(ready, delay, stop.clone(), permit);
        // A separate task, which reads from the coordinator even while the coordinator does not read reports. It ends
        // with this one.
        let mut listener = JoinSet::new();
        listener.spawn(watch_commands(commands, stop));
        forward_seconds(&reports, parts, &mut listener).await?;
        let outcome = load.await.map_err(|_| Status::internal("the load panicked"))?.map_err(unavailable)?;
        send_report(&reports, Report::Done(Box::new((&outcome).into()))).await
    }

    /// Receives the next command; fails after [`LIVENESS_TIMEOUT`].
    async fn next_command(&mut self) -> Result<Command> {
        Ok(next_command(&mut self.commands).await?)
    }

    /// Answers pings until the start. Returns the time to wait; `None` if there is no start.
    async fn wait_for_start(&mut self) -> Result<Option<Duration>> {
        loop {
            match self.next_command().await? {
                Command::Ping => send_report(&self.reports, Report::Pong).await?,
                Command::Alive => {}
                Command::Start(delay) => {
                    let delay = Duration::from_nanos(delay);
                    let too_late = Status::invalid_argument("the start is too far ahead");
                    return if delay <= LIVENESS_TIMEOUT { Ok(Some(delay)) } else { Err(too_late.into()) };
                }
                Command::Stop => return Ok(None),
                Command::Prepare(_) => {
                    return Err(Status::invalid_argument("a load is prepared already").into());
                }
            }
        }
    }
}

async fn next_command(commands: &mut Streaming<Command>) -> Result<Command, Status> {
    let next = timeout(LIVENESS_TIMEOUT, commands.message()).await;
    let next = next.map_err(|_| Status::deadline_exceeded("the coordinator is silent"))?;
    let ended = || Status::cancelled("the coordinator ended its commands");
    next.map_err(|error| error.into_status())?.ok_or_else(ended)
}

/// Sends a report; fails if the coordinator does not read it within [`LIVENESS_TIMEOUT`].
async fn send_report(reports: &Sender<Report>, report: Report) -> Result<()> {
    let sent = timeout(LIVENESS_TIMEOUT, reports.send(report)).await;
    let sent = sent.map_err(|_| Status::deadline_exceeded("the coordinator does not read its reports"))?;
    sent.map_err(|_| Status::cancelled("the coordinator is gone").into())
}

/// Stops the load on [`Command::Stop`] or when the coordinator is lost. Returns the status of the loss.
async fn watch_commands(mut commands: Streaming<Command>, stop: Stop) -> Status {
    loop {
        match next_command(&mut commands).await {
            Ok(Command::Stop) => stop.stop(),
            Ok(_) => {}
            Err(gone) => {
                stop.stop();
                return gone;
            }
        }
    }
}

/// Reports each second until the load ends. Fails when the listener ends, because the coordinator is lost.
async fn forward_seconds(
    reports: &Sender<Report>,
    mut parts: UnboundedReceiver<SecondPart>,
    listener: &mut JoinSet<Status>,
) -> Result<()> {
    let mut alive = interval(KEEPALIVE_INTERVAL);
    loop {
        tokio::select! {
            part = parts.recv() => match part {
                Some(part) => send_report(reports, Report::Second(part.into())).await?,
                None => return Ok(()),
            },
            Some(gone) = listener.join_next() => {
                return Err(gone.unwrap_or_else(|_| Status::internal("the listener panicked")).into());
            }
            _ = alive.tick() => send_report(reports, Report::Alive).await?,
        }
    }
}

/// Opens the connections. The worker is busy for as long as that takes, even if the coordinator is gone.
async fn connect(plan: Plan, part: PlanPart, permit: Arc<OwnedSemaphorePermit>) -> Result<ReadyRun> {
    let connecting = spawn_blocking(move || {
        let ready = ReadyRun::connect(&plan, part);
        drop(permit);
        ready
    });
    Ok(connecting.await.map_err(|_| Status::internal("the load panicked"))?.map_err(unavailable)?)
}

type Load = JoinHandle<Result<Outcome, RunError>>;

/// Starts the load. The worker is busy until it has ended.
fn start(
    ready: ReadyRun,
    delay: Duration,
    stop: Stop,
    permit: Arc<OwnedSemaphorePermit>,
) -> (UnboundedReceiver<SecondPart>, Load) {
    let then = Instant::now() + delay;
    let (sender, parts) = mpsc::unbounded_channel();
    let load = spawn_blocking(move || {
        // The seconds of a load that is being stopped are not needed.
        let outcome = ready.start(then, &stop, |part| drop(sender.send(part)));
        drop(permit);
        outcome
    });
    (parts, load)
}

fn unavailable(error: RunError) -> Status {
    match error {
        RunError::Plan(reason) => Status::invalid_argument(reason),
        other => Status::unavailable(other.to_string()),
    }
}

/// Time without a message after which the peer counts as lost.
pub(super) const LIVENESS_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of keepalive messages.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn second() -> SecondPart {
        SecondPart {
            number: 0,
            sent: 0,
            succeeded: 0,
            failed: 0,
            in_flight: 0,
            lag_max: 0,
            response_max: 0,
            responses: Vec::new(),
        }
    }

    #[tokio::test]
    async fn coordinator_that_is_gone_ends_the_load_although_it_reads_no_reports() {
        let (commands, received) = Streaming::channel(4);
        let (reports, _unread) = Streaming::channel(1);
        let (seconds, parts) = mpsc::unbounded_channel();
        for _ in 0..10 {
            seconds.send(second()).unwrap();
        }
        let forwarding =
            tokio::spawn(async move { forward_seconds(&reports, parts, &mut JoinSet::new()).await });
        let stop = Stop::default();
        commands.send(Command::Alive).await.unwrap();
        drop(commands);
        let gone = watch_commands(received, stop.clone()).await;
        assert!(stop.is_stopped() && !forwarding.is_finished(), "{gone}");
        forwarding.abort();
    }

    #[tokio::test]
    async fn order_to_stop_stops_the_load_but_not_the_conversation() {
        let (commands, received) = Streaming::channel(4);
        let stop = Stop::default();
        let watching = tokio::spawn(watch_commands(received, stop.clone()));
        commands.send(Command::Stop).await.unwrap();
        while !stop.is_stopped() {
            tokio::task::yield_now().await;
        }
        assert!(!watching.is_finished());
        drop(commands);
        assert!(watching.await.unwrap().message().contains("ended its commands"));
    }
}

//! The coordinator of a load: prepares the workers, starts them together, merges what they measure.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use polyrpc::Streaming;
use polyrpc::streaming::Sender;
use polyrpc_load::{Outcome, Plan, PlanPart, Second, SecondMerger, Stop, Verdict};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::WorkersOptions;
use super::message::{Command, PlanMessage, Report, TargetOptions};
use super::options::Endpoint;
use super::service::LoadWorkerClient;
use super::session::{KEEPALIVE_INTERVAL, LIVENESS_TIMEOUT};
use crate::failure::Failure;
use crate::terminal;

/// A load that workers make together.
pub(in crate::bench) struct Division<'a> {
    pub(in crate::bench) workers: &'a WorkersOptions,
    pub(in crate::bench) plan: &'a Plan,
    pub(in crate::bench) target: TargetOptions,
}

/// Makes the load. `on_second` gets each second that every worker has reported.
///
/// # Errors
///
/// If a worker cannot be reached, or rejects the load. A worker that is lost later makes the outcome invalid, and ends the
/// load of the others.
pub(in crate::bench) fn run(
    division: &Division<'_>,
    stop: &Stop,
    on_second: impl FnMut(&Second),
) -> Result<Outcome, Failure> {
    let endpoints = division.workers.endpoints()?;
    terminal::block_on(async {
        let of = endpoints.len();
        let prepared = endpoints.into_iter().enumerate().map(|(number, endpoint)| {
            let message = PlanMessage::new(division.plan, PlanPart { number, of }, &division.target);
            async move { Peer::prepare(endpoint, message.map_err(Failure::new)?).await }
        });
        let peers = try_join_all(prepared).await?;
        Load::start(peers, division.plan, on_second).await?.finish(stop, division.plan).await
    })?
}

/// A worker that is ready.
struct Peer {
    name: String,
    commands: Sender<Command>,
    reports: Streaming<Report>,
    threads: usize,
    /// Half of the shortest time between a command and its answer.
    distance: Duration,
}

impl Peer {
    async fn prepare(endpoint: Endpoint, message: PlanMessage) -> Result<Self, Failure> {
        let Endpoint { name, client } = endpoint;
        let prepared = timeout(PREPARATION, Self::connect(name.clone(), client, message)).await;
        let prepared = prepared.unwrap_or_else(|_| Err(Failure::new("it was not ready in time")));
        prepared.map_err(|failure| failure.with_subject(format_args!("worker {name}")))
    }

    async fn connect(
        name: String,
        client: polyrpc::client::Builder,
        message: PlanMessage,
    ) -> Result<Self, Failure> {
        let worker = LoadWorkerClient::new(client.build()?);
        let (commands, stream) = Streaming::channel(COMMANDS);
        commands.send(Command::Prepare(Box::new(message))).await?;
        let reports = worker.load(stream).await?;
        let mut peer = Self { name, commands, reports, threads: 0, distance: Duration::MAX };
        let Report::Ready(threads) = peer.next_report().await? else { return Err(unexpected()) };
        peer.threads = usize::try_from(threads).map_err(|_| unexpected())?;
        for _ in 0..PINGS {
            let sent = Instant::now();
            peer.commands.send(Command::Ping).await?;
            while !matches!(peer.next_report().await?, Report::Pong) {}
            peer.distance = peer.distance.min(sent.elapsed() / 2);
        }
        Ok(peer)
    }

    async fn next_report(&mut self) -> Result<Report, Failure> {
        let report = timeout(LIVENESS_TIMEOUT, self.reports.message()).await;
        let report = report.map_err(|_| Failure::new(format!("it was silent for {LIVENESS_TIMEOUT:?}")))?;
        report?.ok_or_else(|| Failure::new("it ended the load without results"))
    }

    /// Passes on its reports until it is done or lost. No second has a higher number than `seconds`.
    async fn listen(mut self, number: usize, seconds: u64, events: UnboundedSender<Event>) {
        loop {
            let (event, is_last) = match self.next_report().await {
                Ok(Report::Second(second)) if second.number <= seconds => {
                    (Event::Second(second.into()), false)
                }
                Ok(Report::Done(outcome)) => (Event::Done(number, outcome), true),
                Ok(Report::Alive | Report::Pong) => continue,
                Ok(Report::Ready(_) | Report::Second(_)) => (Event::Lost(number, unexpected()), true),
                Err(failure) => (Event::Lost(number, failure), true),
            };
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    }
}

fn unexpected() -> Failure {
    Failure::new("it sent another report than it should")
}

/// What happens at a worker, by its number.
enum Event {
    Second(polyrpc_load::SecondPart),
    Done(usize, Box<super::message::OutcomeMessage>),
    Lost(usize, Failure),
}

/// A running load.
struct Load<F> {
    names: Vec<String>,
    commands: Vec<Sender<Command>>,
    events: mpsc::UnboundedReceiver<Event>,
    seconds: SecondMerger,
    on_second: F,
    /// When the load ends at the latest, if nothing goes wrong.
    ends: Option<Instant>,
    listeners: JoinSet<()>,
}

impl<F: FnMut(&Second)> Load<F> {
    /// Starts all workers at the same time, as far as the distance to each is known.
    async fn start(peers: Vec<Peer>, plan: &Plan, on_second: F) -> Result<Self, Failure> {
        let farthest = peers.iter().map(|peer| peer.distance).max().unwrap_or_default();
        let then = Instant::now() + farthest + LEAD;
        for peer in &peers {
            let ahead = then.saturating_duration_since(Instant::now() + peer.distance);
            peer.commands.send(Command::Start(ahead.as_nanos() as u64)).await?;
        }
        let length =
            plan.measured_time().map(|length| plan.warmup + length + plan.drain_timeout + LIVENESS_TIMEOUT);
        let (sender, events) = mpsc::unbounded_channel();
        // Those of a worker's clock may be one more.
        let seconds = length.map_or(u64::MAX, |length| length.as_secs() + 1);
        let mut load = Self {
            names: peers.iter().map(|peer| peer.name.clone()).collect(),
            commands: peers.iter().map(|peer| peer.commands.clone()).collect(),
            events,
            seconds: SecondMerger::new(peers.iter().map(|peer| peer.threads).sum()),
            on_second,
            ends: length.and_then(|length| then.checked_add(length)),
            listeners: JoinSet::new(),
        };
        for (number, peer) in peers.into_iter().enumerate() {
            load.listeners.spawn(peer.listen(number, seconds, sender.clone()));
        }
        Ok(load)
    }

    /// Waits until every worker is done or lost.
    async fn finish(mut self, stop: &Stop, plan: &Plan) -> Result<Outcome, Failure> {
        let mut outcomes = Vec::new();
        let mut lost = Vec::new();
        let mut stopping = false;
        let mut ticks = interval(KEEPALIVE_INTERVAL / 10);
        let mut tick = 0_u32;
        while outcomes.len() + lost.len() < self.names.len() {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(Event::Second(part)) => {
                        if let Some(second) = self.seconds.add(&part) {
                            (self.on_second)(second);
                        }
                    }
                    Some(Event::Done(number, outcome)) => match outcome.into_outcome(plan.methods.len()) {
                        Ok(outcome) => outcomes.push(outcome),
                        Err(reason) => lost.push(format!("{} sent results that cannot be used: {reason}", self.names[number])),
                    },
                    Some(Event::Lost(number, failure)) => lost.push(format!("{}: {}", self.names[number], failure.text())),
                    None => break,
                },
                _ = ticks.tick() => {
                    tick = tick.wrapping_add(1);
                    if tick.is_multiple_of(10) {
                        self.send_to_all(&Command::Alive);
                    }
                }
            }
            let is_late = self.ends.is_some_and(|ends| Instant::now() > ends);
            if !stopping && (stop.is_stopped() || !lost.is_empty() || is_late) {
                stopping = true;
                self.send_to_all(&Command::Stop);
                self.ends = Instant::now().checked_add(LIVENESS_TIMEOUT + plan.drain_timeout);
            } else if is_late {
                break;
            }
        }
        let missing = self.names.len() - outcomes.len() - lost.len();
        if missing > 0 {
            lost.push(format!("{missing} of the workers did not end"));
        }
        let mut outcome = Outcome::merge(plan.methods.len(), &outcomes);
        outcome.seconds = self.seconds.finish();
        // Workers that were stopped because another was lost say that they were interrupted.
        outcome.interrupted = stop.is_stopped();
        if !lost.is_empty() {
            outcome.verdict = Verdict::WorkerLost { workers: lost };
        }
        Ok(outcome)
    }

    /// Sends a command to all. One that does not read its commands is found by its silence.
    fn send_to_all(&self, command: &Command) {
        for worker in &self.commands {
            let (worker, command) = (worker.clone(), command.clone());
            tokio::spawn(async move {
                let _ = timeout(LIVENESS_TIMEOUT, worker.send(command)).await;
            });
        }
    }
}

/// Time for a worker to connect to the server and become ready.
const PREPARATION: Duration = Duration::from_secs(60);
/// Time between the order to start and the start.
const LEAD: Duration = Duration::from_millis(50);
const PINGS: usize = 5;
/// Commands that wait for a worker.
const COMMANDS: usize = 16;

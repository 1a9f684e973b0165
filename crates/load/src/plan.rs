//! The plan of a run: methods, messages, pacing, connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polyrpc::Bytes;
use polyrpc::client::{Builder, CallOptions, ConnectionMode};
use polyrpc::codec::Body;

use crate::feed::Order;
use crate::process::Process;
use crate::schedule::{Arrivals, Profile};

/// Creates clients of the server, one for each connection of [`ConnectionMode::Shared`].
pub type ClientFactory = Arc<dyn Fn() -> Result<Builder, String> + Send + Sync>;

/// A run.
#[derive(Clone)]
pub struct Plan {
    /// Creates the clients.
    pub client: ClientFactory,
    /// Methods to call, each with a weight. At least one.
    pub methods: Vec<Method>,
    /// When calls start.
    pub pacing: Pacing,
    /// Time of calls before the measurement.
    pub warmup: Duration,
    /// Length of the measurement.
    pub length: RunLength,
    /// How calls share connections.
    pub connection_mode: ConnectionMode,
    /// Number of connections that calls share, if they share.
    pub connections: usize,
    /// Number of threads; each has its own connections, calls and histograms.
    pub threads: usize,
    /// Maximum number of calls in flight of an open loop.
    pub max_in_flight: usize,
    /// Longest time to wait for calls in flight after the measurement.
    pub drain_timeout: Duration,
    /// Seed of random intervals, methods and messages.
    pub seed: u64,
    /// Process of the server, if it runs on this machine.
    pub server: Option<Process>,
}

/// The calls of a plan that this process makes, if several make them together: every `of`-th one, from number `number`.
/// The callers, connections and calls in flight of a plan are those of all processes; each has
/// [`threads`](Plan::threads).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanPart {
    /// Number of this process, from 0.
    pub number: usize,
    /// Number of processes.
    pub of: usize,
}

impl PlanPart {
    /// All calls.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// Number of a thread of this process among the threads of all.
    pub(crate) fn thread(self, thread: usize) -> usize {
        self.number + self.of * thread
    }

    /// Number of threads of all processes, if each has this number.
    pub(crate) fn threads(self, threads: usize) -> usize {
        self.of * threads
    }
}

/// When calls start.
#[derive(Debug, Clone, PartialEq)]
pub enum Pacing {
    /// At planned times, whether or not earlier calls have ended. Response times count from the planned time.
    Open {
        /// Rate over time.
        profile: Profile,
        /// Distribution of the intervals.
        arrivals: Arrivals,
    },
    /// Each caller calls again when its call has ended. A server that stalls gets fewer calls, so response times do
    /// not include the waiting time of calls that would have been made meanwhile.
    Closed {
        /// Number of callers.
        callers: usize,
        /// A thread with a blocking client for each caller. Only for unary and one-way calls.
        blocking: bool,
    },
}

/// Length of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLength {
    /// Calls during this time.
    Time(Duration),
    /// This number of calls.
    Calls(u64),
}

/// A method, its messages, and how it is called.
#[derive(Clone)]
pub struct Method {
    /// Name for reports.
    pub name: String,
    /// Name for the client.
    pub target: String,
    /// Share of the calls, relative to the other methods.
    pub weight: u32,
    /// Messages and their number for each call.
    pub kind: CallKind,
    /// Encoded requests, at least one. Shared by all threads.
    pub messages: Arc<[Body]>,
    /// The reply that every unary call must get, byte by byte; a call with another one has failed. `None`: any.
    pub expected: Option<Bytes>,
    /// Which call gets which message.
    pub order: Order,
    /// Metadata, timeout, compression. The timeout of a stream covers the whole call, of [`CallKind::Bidi`] a message
    /// and its answer.
    pub options: CallOptions,
}

/// Messages of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// One message each way.
    Unary,
    /// One message; a call ends when it is sent.
    Oneway,
    /// One message to the server, several back: a call ends with the last.
    ServerStream,
    /// Several messages to the server, one back.
    ClientStream {
        /// Messages of a call.
        messages: usize,
    },
    /// A stream for each caller, open for the whole run: a call is a message and the next message back.
    Bidi,
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unary => "unary",
            Self::Oneway => "oneway",
            Self::ServerStream => "server stream",
            Self::ClientStream { .. } => "client stream",
            Self::Bidi => "bidirectional stream",
        })
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("methods", &self.methods)
            .field("pacing", &self.pacing)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Method")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("messages", &self.messages.len())
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// Checks conditions that the types cannot express.
    pub(crate) fn check(&self, part: PlanPart) -> Result<(), String> {
        if part.number >= part.of {
            return Err(format!("there is no part {} of {}", part.number, part.of));
        }
        let threads = part.threads(self.threads);
        if self.methods.iter().all(|method| method.weight == 0) {
            return Err("no method has a weight above 0".to_owned());
        }
        if let Some(method) = self.methods.iter().find(|method| method.messages.is_empty()) {
            return Err(format!("{} has no message", method.name));
        }
        if threads == 0 || self.connections < threads {
            return Err("every thread needs a connection".to_owned());
        }
        let is_simple = |method: &Method| matches!(method.kind, CallKind::Unary | CallKind::Oneway);
        match &self.pacing {
            Pacing::Closed { callers, .. } if *callers < self.connections => {
                Err(format!("{callers} callers cannot use {} connections", self.connections))
            }
            Pacing::Closed { blocking: true, .. } if !self.methods.iter().all(is_simple) => {
                Err("blocking callers make no streaming calls".to_owned())
            }
            Pacing::Open { .. } if self.max_in_flight < threads => {
                Err("every thread needs a call in flight".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Number of callers of a thread: its share of all.
    pub(crate) fn share(count: usize, thread: usize, threads: usize) -> usize {
        count / threads + usize::from(thread < count % threads)
    }
}

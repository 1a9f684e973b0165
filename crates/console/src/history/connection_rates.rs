use std::collections::HashMap;
use std::time::{Duration, Instant};

use polyrpc::introspection::Connection;

/// Bytes and calls of the connections at some times of the past. They are sampled only while the page is viewed.
#[derive(Debug, Default)]
pub(crate) struct ConnectionHistory {
    last: HashMap<(u64, u64), Counts>,
    minute: HashMap<(u64, u64), Counts>,
    taken: Option<Instant>,
    minute_taken: Option<Instant>,
    viewed: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    received: u64,
    sent: u64,
    calls: u64,
    answers: u64,
}

/// Bytes and calls of a connection in a second, and in a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub(crate) struct ConnectionRates {
    pub(crate) received_second: u64,
    pub(crate) received_minute: u64,
    pub(crate) sent_second: u64,
    pub(crate) sent_minute: u64,
    pub(crate) calls_second: u64,
    pub(crate) calls_minute: u64,
    pub(crate) answers_second: u64,
    pub(crate) answers_minute: u64,
}

/// For how long the connections are sampled after the page was seen.
const SAMPLING_TIMEOUT: Duration = Duration::from_secs(120);

/// How many connections are sampled.
const MAX_CONNECTIONS: usize = 16_384;

impl Counts {
    fn new(connection: &Connection) -> Self {
        Self {
            received: connection.received,
            sent: connection.sent,
            calls: connection.calls.started,
            answers: connection.calls.succeeded + connection.calls.failed,
        }
    }
}

impl ConnectionHistory {
    /// Records that the page of connections is viewed.
    pub(crate) fn view(&mut self, now: Instant) {
        self.viewed = Some(now);
    }

    /// Whether to sample the connections; drops the samples if not.
    pub(crate) fn is_watched(&mut self, now: Instant) -> bool {
        let watched =
            self.viewed.is_some_and(|viewed| now.saturating_duration_since(viewed) < SAMPLING_TIMEOUT);
        if !watched && self.taken.is_some() {
            *self = Self::default();
        }
        watched
    }

    /// Records the connections of all servers, with their servers.
    pub(crate) fn record<'c>(&mut self, all: impl Iterator<Item = (u64, &'c Connection)>, now: Instant) {
        let counts = all
            .take(MAX_CONNECTIONS)
            .map(|(server, connection)| ((server, connection.id), Counts::new(connection)));
        self.last = counts.collect();
        self.taken = Some(now);
        let minute = Duration::from_secs(60);
        if self.minute_taken.is_none_or(|taken| now.saturating_duration_since(taken) >= minute) {
            self.minute = self.last.clone();
            self.minute_taken = Some(now);
        }
    }

    /// Returns the rates of a connection: since it was last sampled, or else since it was opened.
    pub(crate) fn rates(&self, server: u64, connection: &Connection, now: Instant) -> ConnectionRates {
        let key = (server, connection.id);
        let counts = Counts::new(connection);
        let since = |samples: &HashMap<_, Counts>, taken: Option<Instant>| match (samples.get(&key), taken) {
            (Some(then), Some(taken)) => (*then, now.saturating_duration_since(taken)),
            _ => (Counts::default(), connection.age),
        };
        let (last, elapsed) = since(&self.last, self.taken);
        let (minute, elapsed_minute) = since(&self.minute, self.minute_taken);
        let per = |now: u64, then: u64, elapsed: Duration, period: f64| {
            (now.saturating_sub(then) as f64 * period / elapsed.as_secs_f64().max(period)) as u64
        };
        let second = |now, then| per(now, then, elapsed, 1.0);
        let a_minute = |now, then| per(now, then, elapsed_minute, 60.0);
        ConnectionRates {
            received_second: second(counts.received, last.received),
            received_minute: a_minute(counts.received, minute.received),
            sent_second: second(counts.sent, last.sent),
            sent_minute: a_minute(counts.sent, minute.sent),
            calls_second: second(counts.calls, last.calls),
            calls_minute: a_minute(counts.calls, minute.calls),
            answers_second: second(counts.answers, last.answers),
            answers_minute: a_minute(counts.answers, minute.answers),
        }
    }
}

use std::time::Duration;

use polyrpc_wire::Protocol;

use super::Peer;

/// What a server has done and is doing: what gRPC's channelz tells of a server and its sockets, for every protocol.
/// See [`Running::facts`](crate::server::Running::facts).
#[derive(Debug, Clone, Default)]
pub struct ServerInfo {
    /// All calls since the server began, those of connections that have closed among them.
    pub calls: Calls,
    /// Of the calls that failed, those whose deadline had passed when they were taken up: their handlers were not asked.
    pub expired: u64,
    /// The connections that are open, in no order.
    pub connections: Vec<Connection>,
    /// What all connections use together, of what [`Limits`](crate::server::Limits) bounds.
    pub used: ResourceUsage,
    /// How many calls and connections were refused, by cause.
    pub refusals: Vec<(&'static str, u64)>,
    /// How many connections the server closed before their peers did, by cause.
    pub closings: Vec<(&'static str, u64)>,
    /// How many values of requests in JSON or MessagePack were passed over, since their messages of a `.proto` have no such
    /// field, or no such value of an enum. On the page of metrics it is `polyrpc_unknown_fields_total`.
    pub unknown_fields: u64,
}

/// What a server counts of itself as a whole.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) connections: usize,
    /// How many there were.
    pub(crate) accepted: u64,
    /// Bytes of all connections.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Messages that wait to be pushed.
    pub(crate) pushes: usize,
    pub(crate) used: ResourceUsage,
    pub(crate) refusals: Vec<(&'static str, u64)>,
    pub(crate) closings: Vec<(&'static str, u64)>,
    pub(crate) unknown_fields: u64,
}

impl Totals {
    /// Adds what another server counts by the same causes.
    pub(crate) fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.accepted += other.accepted;
        self.received += other.received;
        self.sent += other.sent;
        self.pushes += other.pushes;
        self.used.memory += other.used.memory;
        self.used.calls += other.used.calls;
        self.used.streams += other.used.streams;
        add_counts(&mut self.refusals, other.refusals);
        add_counts(&mut self.closings, other.closings);
        self.unknown_fields += other.unknown_fields;
    }
}

fn add_counts(sums: &mut Vec<(&'static str, u64)>, more: Vec<(&'static str, u64)>) {
    if sums.is_empty() {
        *sums = more;
        return;
    }
    sums.iter_mut().zip(more).for_each(|(sum, (_, more))| sum.1 += more);
}

/// A server that tells what it counts of itself.
pub(crate) trait Countable: std::fmt::Debug + Send + Sync {
    fn totals(&self) -> Totals;
}

/// What the connections of a server use together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Bytes that peers make the server hold.
    pub memory: usize,
    /// Calls whose handlers wait.
    pub calls: usize,
    /// Open streams.
    pub streams: usize,
}

/// How many calls began, and how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// They were taken from the wire.
    pub started: u64,
    /// They were answered, and not with a failure.
    pub succeeded: u64,
    /// They failed, were refused, or were cancelled by the caller.
    pub failed: u64,
}

impl Calls {
    /// How many are under way.
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.succeeded).saturating_sub(self.failed)
    }

    /// What becomes of them when their connection closes: those under way have failed.
    pub(crate) fn with_in_flight_failed(self) -> Self {
        Self { failed: self.failed + self.in_flight(), ..self }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.started += other.started;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
    }

    /// Counts the end of a call.
    pub(crate) fn ended(&mut self, succeeded: bool) {
        match succeeded {
            true => self.succeeded += 1,
            false => self.failed += 1,
        }
    }
}

/// An open connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Its number, which no other connection of the server has borne.
    pub id: u64,
    /// Who is at its other end.
    pub peer: Peer,
    /// What it speaks; `None` until its first bytes have told.
    pub protocol: Option<Protocol>,
    /// How long it is open, to a quarter of a second.
    pub age: Duration,
    /// Its calls, as they were when it last waited for something.
    pub calls: Calls,
}

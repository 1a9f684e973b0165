use std::time::Duration;

use polyrpc_wire::Protocol;

use super::Peer;

/// Counters and current load of a server: what gRPC's channelz reports of a server and its sockets, for every protocol.
/// See [`ServerHandle::info`](crate::server::ServerHandle::info).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ServerInfo {
    /// All calls since the server started, including those of closed connections.
    pub calls: Calls,
    /// Of the failed calls, those whose deadline had passed before they were started: their handlers did not run.
    pub expired: u64,
    /// The open connections, in no particular order.
    pub connections: Vec<Connection>,
    /// Bytes that all connections buffer for their peers. [`Limits`](crate::server::Limits) bounds them, as it does the
    /// next two.
    pub held_bytes: usize,
    /// Calls with a pending handler, of all connections.
    pub pending_calls: usize,
    /// Open streams of all connections.
    pub open_streams: usize,
    /// Number of rejected calls and connections, by cause.
    pub rejections: Vec<(&'static str, u64)>,
    /// Number of connections that the server closed before their peers did, by cause.
    pub closed_connections: Vec<(&'static str, u64)>,
    /// Number of values in JSON or MessagePack requests that were ignored, since their `.proto` messages have no such
    /// field, or no such enum value. On the metrics page it is `polyrpc_unknown_fields_total`.
    pub unknown_fields: u64,
}

/// Counters of a server as a whole.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) connections: usize,
    /// Number of connections accepted so far.
    pub(crate) accepted: u64,
    /// Bytes of all connections.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Messages that wait to be pushed.
    pub(crate) pushes: usize,
    pub(crate) used: ResourceUsage,
    pub(crate) rejections: Vec<(&'static str, u64)>,
    pub(crate) closed_connections: Vec<(&'static str, u64)>,
    pub(crate) unknown_fields: u64,
}

impl Totals {
    /// Adds the counters of another server; causes are the same.
    pub(crate) fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.accepted += other.accepted;
        self.received += other.received;
        self.sent += other.sent;
        self.pushes += other.pushes;
        self.used.memory += other.used.memory;
        self.used.calls += other.used.calls;
        self.used.streams += other.used.streams;
        add_counts(&mut self.rejections, other.rejections);
        add_counts(&mut self.closed_connections, other.closed_connections);
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

/// A server whose counters can be read.
pub(crate) trait Countable: std::fmt::Debug + Send + Sync {
    fn totals(&self) -> Totals;
}

/// Resources that the connections of a server use together.
#[derive(Debug, Default)]
pub(crate) struct ResourceUsage {
    /// Bytes buffered for peers.
    pub(crate) memory: usize,
    /// Calls with a pending handler.
    pub(crate) calls: usize,
    /// Open streams.
    pub(crate) streams: usize,
}

/// Number of calls started, and how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calls {
    /// Calls read from the wire.
    pub started: u64,
    /// Calls answered without a failure.
    pub succeeded: u64,
    /// Calls that failed, were rejected, or were cancelled by the caller.
    pub failed: u64,
}

impl Calls {
    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.succeeded).saturating_sub(self.failed)
    }

    /// Returns the counters after the connection has closed: calls in flight have failed.
    pub(crate) fn with_in_flight_failed(self) -> Self {
        Self { failed: self.failed + self.in_flight(), ..self }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.started += other.started;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
    }

    /// Counts the end of a call.
    pub(crate) fn count_end(&mut self, succeeded: bool) {
        match succeeded {
            true => self.succeeded += 1,
            false => self.failed += 1,
        }
    }
}

/// An open connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Connection {
    /// Its id, unique among all connections of the server.
    pub id: u64,
    /// The peer.
    pub peer: Peer,
    /// Its protocol; `None` until it is detected from the first bytes.
    pub protocol: Option<Protocol>,
    /// Its age, to a quarter of a second.
    pub age: Duration,
    /// Its calls, as of when the connection last waited for its peer or a handler.
    pub calls: Calls,
    /// Bytes received, within TLS if there is any; as of the same time.
    pub received: u64,
    /// Bytes sent; as of the same time.
    pub sent: u64,
    /// Bytes that its peer makes the server hold.
    pub buffered_bytes: usize,
    /// How long the connection has been idle: no call has been in flight, and no byte has moved. `None` while
    /// it is not idle, and if [`Limits::idle_timeout`](crate::server::Limits::idle_timeout) exempts it.
    pub idle: Option<Duration>,
}

use std::time::Duration;

/// What a server will take on.
///
/// Every length a peer announces, every wait and every queue meets one of these.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of one message on the wire. 64 MiB.
    pub message: usize,
    /// Bytes of one message after decompression. 64 MiB.
    pub decompressed: usize,
    /// Bytes of an HTTP head. 64 KiB.
    pub header: usize,
    /// Open connections; one more is closed at once. 100,000.
    pub connections: usize,
    /// Calls being answered at a time, over all connections; one more is refused. 65,536.
    ///
    /// A call that its handler answers without waiting does not count: it is over before the next begins.
    pub in_flight: usize,
    /// Calls being answered at a time for one connection; then it is not read on. 4,096.
    pub in_flight_per_connection: usize,
    /// Bytes of answers that one client may leave unread; then its calls are not read on. 4 MiB.
    pub unsent: usize,
    /// How long a connection may take to show its protocol, and a message to bring its header or the next
    /// kilobyte of its body. 10 s.
    pub header_timeout: Duration,
    /// How long a connection may do nothing. `None`: forever. 10 minutes. Clients that would not hear of an end (over KCP)
    /// or make no other connection (Go's of `net/rpc`, once they have called) may for as long as they are there.
    pub idle_timeout: Option<Duration>,
    /// Streams and files that were granted and not begun (`transfer`); one more ends the oldest. 1,024.
    pub tokens: usize,
    /// How long a stream or a file that was granted may be begun. 30 s.
    pub token_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let wire = polyrpc_wire::Limits::default();
        Self {
            message: wire.message,
            decompressed: wire.decompressed,
            header: wire.header,
            connections: 100_000,
            in_flight: 65_536,
            in_flight_per_connection: 4_096,
            unsent: 4 << 20,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Some(Duration::from_secs(600)),
            tokens: 1024,
            token_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    pub(super) fn wire(&self) -> polyrpc_wire::Limits {
        polyrpc_wire::Limits { message: self.message, decompressed: self.decompressed, header: self.header }
    }
}

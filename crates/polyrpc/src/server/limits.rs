use std::io;
use std::time::Duration;

use polyrpc_core::session::SlowPeerGuard;

use super::default_memory;

/// Limits on the resources of a server that one connection, one peer, and all of them together may use.
///
/// Every length that a peer announces, every byte that the server holds for it, every wait and every queue is bounded
/// by one of these limits or by a constant. `docs/security.md` lists both with their effects on a peer.
///
/// [`Server::bind`](super::Server::bind) rejects a limit of zero that no call or no connection could satisfy.
/// Zero is accepted where it has a meaning: no streams ([`streams`](Self::streams),
/// [`streams_per_peer`](Self::streams_per_peer)), no minimum rate ([`min_data_rate`](Self::min_data_rate)),
/// no waiting ([`half_close_timeout`](Self::half_close_timeout),
/// [`connection_age_grace`](Self::connection_age_grace)), a delay from the first failure on
/// ([`credential_failures`](Self::credential_failures)), and no tolerated resets ([`Http2::resets`],
/// [`Http2::resets_per_second`]).
///
/// ```
/// use std::time::Duration;
/// use polyrpc::Server;
/// use polyrpc::server::Limits;
///
/// let server = Server::new().limits(Limits {
///     memory: 256 << 20,
///     message: 8 << 20,
///     message_timeout: Duration::from_secs(30),
///     ..Limits::default()
/// });
/// ```
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum size of one message on the wire, in bytes. Default: 64 MiB.
    ///
    /// A larger message is rejected: with `resource_exhausted` where the call can still be answered, otherwise by
    /// closing the connection.
    pub message: usize,
    /// Maximum size of one message after decompression, in bytes. Default: 64 MiB.
    pub decompressed: usize,
    /// Maximum size of an HTTP head or an HTTP/2 header list, in bytes. Default: 64 KiB.
    ///
    /// A larger one is answered with 431, in gRPC with `resource_exhausted`; other calls of the connection continue. The
    /// names of a call's service and method together have the same limit, in every protocol.
    pub header: usize,

    /// Bytes that the server may hold for all peers together: requests that are incomplete or wait for a handler,
    /// decompressed messages, unread replies and pushes, queued messages of streams, subscriptions. Default: a quarter
    /// of the memory that the process may use, at most 1 GiB.
    ///
    /// Near this bound the server stops reading from connections that hold much and rejects their new calls with
    /// `resource_exhausted`; beyond it, it closes the connection that holds most.
    pub memory: usize,
    /// Bytes of [`memory`](Self::memory) that one peer address may hold. Default: half of it, but at least
    /// [`memory_per_connection`](Self::memory_per_connection).
    pub memory_per_peer: usize,
    /// Bytes of [`memory`](Self::memory) that one connection may hold. Default: 160 MiB: a message of 64 MiB,
    /// decompressed to 64 MiB more, and room for the start of its response.
    pub memory_per_connection: usize,
    /// Bytes of responses that the peer of one connection may leave unread; beyond it the server stops reading its
    /// calls. Default: 4 MiB.
    pub unsent_per_connection: usize,

    /// Maximum number of open connections. Default: 100,000, and no more than the process may have file descriptors
    /// for.
    ///
    /// A further connection is closed at once. Shortly before the limit, connections are evicted: those that have sent
    /// nothing yet, else those that have been idle for longest, else those without any progress, starting with the
    /// address that has most of them.
    pub connections: usize,
    /// Maximum number of open connections from one peer address. Default: 50,000. If file descriptors allow no more than
    /// this in all, one address may have half of them. Shortly before the limit, connections of this address are
    /// evicted, in the same order.
    pub connections_per_peer: usize,

    /// Maximum number of calls with a pending handler, over all connections. Default: 65,536.
    ///
    /// A call counts once its message is complete, but not if its handler answers without waiting. A further call is
    /// rejected with `resource_exhausted`, unless it is introspection (health, reflection, pages). The last quarter is
    /// shared: a connection gets only its equal share of it.
    pub in_flight: usize,
    /// Maximum number of calls with a pending handler for one peer address. Default: 49,152.
    pub in_flight_per_peer: usize,
    /// Maximum number of calls with a pending handler for one connection; beyond it the connection is not read.
    /// Default: 4,096.
    pub in_flight_per_connection: usize,

    /// Maximum number of open streaming calls, over all connections; unary calls count as [`in_flight`](Self::in_flight).
    /// Default: 65,536, the last quarter shared as for these.
    pub streams: usize,
    /// Maximum number of open streaming calls of one peer address. Default: 49,152.
    pub streams_per_peer: usize,
    /// Maximum number of open streams of one connection. Default: 1,024. HTTP/2 announces it as
    /// `MAX_CONCURRENT_STREAMS`, where unary calls count too.
    pub streams_per_connection: usize,

    /// How long a new connection may send nothing. The same limit applies to the first byte after a WebSocket was opened
    /// or `CONNECT` was sent. Default: 2 minutes.
    pub first_byte_timeout: Duration,
    /// How long a connection may take until its protocol is detected, for a TLS handshake, and to send an HTTP head. It
    /// is also the interval over which [`min_data_rate`](Self::min_data_rate) is measured, and how long an incomplete
    /// message waits for room in the memory budget. Default: 10 s.
    pub header_timeout: Duration,
    /// How long one message may take from its first byte to its last. Default: 2 minutes.
    ///
    /// An HTTP/2 stream that exceeds it fails with `deadline_exceeded`; in the other protocols, where nothing can
    /// follow an incomplete message, the connection is closed.
    pub message_timeout: Duration,
    /// Minimum rate of an incomplete message in bytes per second, as the mean over each
    /// [`header_timeout`](Self::header_timeout). Default: 1 KiB.
    pub min_data_rate: usize,
    /// How long a peer may read nothing of the pending output, whether the socket is full or its windows are closed.
    /// Default: 30 s.
    ///
    /// Output that the system has taken is not pending for the server. On Linux the system itself ends a TCP connection,
    /// 2 s later than this, if the peer acknowledges none of it or keeps its receive window closed (`TCP_USER_TIMEOUT`).
    pub write_timeout: Duration,
    /// How long calls may continue after the peer has closed its half of the connection: it may still read, or have
    /// disappeared. Default: 5 s.
    pub half_close_timeout: Duration,
    /// How long a connection may be idle. `None`: forever. Default: 10 minutes. Every byte restarts it, so that a client
    /// keeps its connection by PINGs or heartbeats; [`connection_age`](Self::connection_age) bounds that. Some clients
    /// may be idle for as long as they are connected: those that would not notice the close (over KCP), that open no
    /// other connection (Go's of `net/rpc`, once they have called), or that cannot send a keepalive (subscribers of
    /// rest_rpc from v0.21 on).
    pub idle_timeout: Option<Duration>,
    /// How long an open stream may go without a message in either direction. `None`: forever. Default: 1 hour.
    pub stream_idle_timeout: Option<Duration>,
    /// How long a unary call may take, also if its caller sets no deadline or its protocol has no field for one
    /// (net/rpc, rest_rpc, fb_rpc); an earlier deadline takes precedence. `None`, the default: as long as its caller
    /// waits.
    pub call_timeout: Option<Duration>,
    /// How long a connection may exist; then it is drained as on shutdown. Varied by up to a tenth, so that clients do
    /// not reconnect all at once. `None`, the default: for as long as its peer wants.
    pub connection_age: Option<Duration>,
    /// How long a connection that reached its [age](Self::connection_age) may still finish its calls. Default: 30 s.
    pub connection_age_grace: Duration,

    /// How long an [authenticator](super::Listen::authenticate_async) may take. Default: 10 s.
    pub authentication_timeout: Duration,
    /// Number of failed credentials from one peer address that are rejected without a delay. The response to
    /// the next failure is delayed by 1 s, and the delay grows by 1 s per further failure, up to 30 s. The
    /// count of failures falls by one per second. Default: 10.
    pub credential_failures: u32,

    /// Limits that are specific to HTTP/2.
    pub http2: Http2,

    /// Maximum number of unused one-time tokens for byte streams and file transfers (`transfer`); a further one drops the
    /// oldest. Default: 1,024.
    pub transfer_tokens: usize,
    /// How long a granted stream or file may wait to be started. Default: 30 s.
    pub transfer_token_timeout: Duration,
}

/// Limits that are specific to HTTP/2, and so to gRPC.
#[derive(Debug, Clone)]
pub struct Http2 {
    /// Initial flow-control window of a stream, in bytes (`INITIAL_WINDOW_SIZE`). Default: 64 KiB.
    pub stream_window: u32,
    /// Initial flow-control window of a stream once [`large_frame`](Self::large_frame) was announced, in bytes. Default:
    /// 1 MiB; `max_stream_window` limits it.
    pub large_stream_window: u32,
    /// Maximum to which a stream's window may grow while its messages are read as fast as they arrive. Default: 4 MiB.
    pub max_stream_window: u32,
    /// Flow-control window of a connection, shared by all its streams, in bytes. Default: 16 MiB.
    pub connection_window: u32,
    /// Maximum size of one frame, in bytes (`MAX_FRAME_SIZE`). Default: 16 KiB, the minimum that the protocol allows.
    pub frame: u32,
    /// Maximum size of one frame, in bytes, announced once two full DATA frames of the peer were consumed. Default: 1 MiB.
    /// A value that does not exceed `frame` disables this, and [`large_stream_window`](Self::large_stream_window) with it.
    pub large_frame: u32,
    /// Number of streams that a peer may reset, or make the server reset, in one burst. Default: 1,000. A stream that
    /// ends normally offsets one that was reset.
    ///
    /// The server sends GOAWAY `ENHANCE_YOUR_CALM` to a peer that exceeds it.
    pub resets: u32,
    /// How many resets are forgiven per second. Default: 100.
    pub resets_per_second: u32,
    /// How long a connection with open streams, or with responses that wait for windows, may be silent before the
    /// server sends a PING. `None`: never. Default: 5 minutes.
    pub keepalive_interval: Option<Duration>,
    /// How long the peer may take to answer that PING; then the connection is closed. Default: 20 s.
    pub keepalive_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let wire = polyrpc_core::Limits::default();
        let memory = default_memory::default_budget();
        let memory_per_connection = MEMORY_PER_CONNECTION.min(memory);
        Self {
            message: wire.message,
            decompressed: wire.decompressed,
            header: wire.header,
            memory,
            memory_per_peer: (memory / 2).max(memory_per_connection),
            memory_per_connection,
            unsent_per_connection: 4 << 20,
            connections: 100_000,
            connections_per_peer: 50_000,
            in_flight: 65_536,
            in_flight_per_peer: 49_152,
            in_flight_per_connection: 4_096,
            streams: 65_536,
            streams_per_peer: 49_152,
            streams_per_connection: 1_024,
            first_byte_timeout: Duration::from_secs(120),
            header_timeout: Duration::from_secs(10),
            message_timeout: Duration::from_secs(120),
            min_data_rate: 1 << 10,
            write_timeout: Duration::from_secs(30),
            half_close_timeout: Duration::from_secs(5),
            idle_timeout: Some(Duration::from_secs(600)),
            stream_idle_timeout: Some(Duration::from_secs(3600)),
            call_timeout: None,
            connection_age: None,
            connection_age_grace: Duration::from_secs(30),
            authentication_timeout: Duration::from_secs(10),
            credential_failures: 10,
            http2: Http2::default(),
            transfer_tokens: 1024,
            transfer_token_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            stream_window: 64 << 10,
            large_stream_window: 1 << 20,
            max_stream_window: 4 << 20,
            connection_window: 16 << 20,
            frame: 16 << 10,
            large_frame: 1 << 20,
            resets: 1_000,
            resets_per_second: 100,
            keepalive_interval: Some(Duration::from_secs(300)),
            keepalive_timeout: Duration::from_secs(20),
        }
    }
}

const MEMORY_PER_CONNECTION: usize = 160 << 20;

impl Http2 {
    fn check(&self) -> io::Result<()> {
        let Self {
            stream_window,
            large_stream_window,
            max_stream_window,
            connection_window,
            frame,
            large_frame,
            resets: _,
            resets_per_second: _,
            keepalive_interval,
            keepalive_timeout,
        } = self;
        let amounts = [
            ("stream_window", *stream_window as usize),
            ("large_stream_window", *large_stream_window as usize),
            ("max_stream_window", *max_stream_window as usize),
            ("connection_window", *connection_window as usize),
            ("frame", *frame as usize),
            ("large_frame", *large_frame as usize),
        ];
        let times = [("keepalive_timeout", *keepalive_timeout)];
        let optional_times = [("keepalive_interval", *keepalive_interval)];
        first_zero(&amounts, &times, &optional_times).map_or(Ok(()), |zero| Err(zero.error("Limits::http2")))
    }
}

/// A limit that must not be zero, and the value to set instead.
struct Zero {
    name: &'static str,
    instead: &'static str,
}

impl Zero {
    fn error(&self, holder: &str) -> io::Error {
        let Self { name, instead } = self;
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the limit `{holder}::{name}` is zero: {instead}"),
        )
    }
}

fn first_zero(
    amounts: &[(&'static str, usize)],
    times: &[(&'static str, Duration)],
    optional_times: &[(&'static str, Option<Duration>)],
) -> Option<Zero> {
    let amounts = amounts.iter().filter(|(_, amount)| *amount == 0);
    let times = times.iter().filter(|(_, time)| time.is_zero());
    let optional_times = optional_times.iter().filter(|(_, time)| time.is_some_and(|time| time.is_zero()));
    let mut zeros = amounts
        .map(|(name, _)| Zero { name, instead: "it must be at least 1" })
        .chain(times.map(|(name, _)| Zero { name, instead: "it must be longer than that" }))
        .chain(optional_times.map(|(name, _)| Zero { name, instead: "`None` sets no limit" }));
    zeros.next()
}

impl Limits {
    /// Rejects limits of zero that would reject everything or have no meaning.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with the name of the first such limit.
    pub(super) fn check(&self) -> io::Result<()> {
        // Every field by name: for a new field, decide here what zero means.
        let Self {
            message,
            decompressed,
            header,
            memory,
            memory_per_peer,
            memory_per_connection,
            unsent_per_connection,
            connections,
            connections_per_peer,
            in_flight,
            in_flight_per_peer,
            in_flight_per_connection,
            streams: _,
            streams_per_peer: _,
            // HTTP/2 counts unary calls too.
            streams_per_connection,
            first_byte_timeout,
            header_timeout,
            message_timeout,
            min_data_rate: _,
            write_timeout,
            half_close_timeout: _,
            idle_timeout,
            stream_idle_timeout,
            call_timeout,
            connection_age,
            connection_age_grace: _,
            authentication_timeout,
            credential_failures: _,
            http2,
            transfer_tokens,
            transfer_token_timeout,
        } = self;
        let amounts = [
            ("message", *message),
            ("decompressed", *decompressed),
            ("header", *header),
            ("memory", *memory),
            ("memory_per_peer", *memory_per_peer),
            ("memory_per_connection", *memory_per_connection),
            ("unsent_per_connection", *unsent_per_connection),
            ("connections", *connections),
            ("connections_per_peer", *connections_per_peer),
            ("in_flight", *in_flight),
            ("in_flight_per_peer", *in_flight_per_peer),
            ("in_flight_per_connection", *in_flight_per_connection),
            ("streams_per_connection", *streams_per_connection),
            ("transfer_tokens", *transfer_tokens),
        ];
        let times = [
            ("first_byte_timeout", *first_byte_timeout),
            ("header_timeout", *header_timeout),
            ("message_timeout", *message_timeout),
            ("write_timeout", *write_timeout),
            ("authentication_timeout", *authentication_timeout),
            ("transfer_token_timeout", *transfer_token_timeout),
        ];
        let optional_times = [
            ("idle_timeout", *idle_timeout),
            ("stream_idle_timeout", *stream_idle_timeout),
            ("call_timeout", *call_timeout),
            ("connection_age", *connection_age),
        ];
        first_zero(&amounts, &times, &optional_times).map_or(Ok(()), |zero| Err(zero.error("Limits")))?;
        http2.check()
    }

    /// Returns the limits with no more connections than the process may have file descriptors for, less some for
    /// everything else.
    pub(super) fn within_system(self) -> Self {
        const OTHER_DESCRIPTORS: u64 = 64;
        let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        self.with_at_most(open_files.map_or(usize::MAX, |limit| {
            limit.saturating_sub(OTHER_DESCRIPTORS).max(1).try_into().unwrap_or(usize::MAX)
        }))
    }

    /// Returns the limits with at most this many connections.
    fn with_at_most(self, connections: usize) -> Self {
        if connections >= self.connections {
            return self;
        }
        // A limit per peer that cannot be reached would let one address take all the rest. One that can be reached was
        // set for this server, for example since its clients share the address of a proxy.
        let connections_per_peer = match self.connections_per_peer < connections {
            true => self.connections_per_peer,
            false => (connections / 2).max(1),
        };
        Self { connections, connections_per_peer, ..self }
    }

    pub(super) fn wire(&self) -> polyrpc_core::Limits {
        let pace = SlowPeerGuard {
            interval: self.header_timeout,
            rate: self.min_data_rate,
            message_timeout: self.message_timeout,
        };
        polyrpc_core::Limits {
            message: self.message,
            decompressed: self.decompressed,
            header: self.header,
            pace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn file_descriptors_lower_only_what_they_cannot_hold() {
        let counts = |limits: Limits, connections| {
            let limits = limits.with_at_most(connections);
            (limits.connections, limits.connections_per_peer)
        };
        assert_eq!(counts(Limits::default(), 1_000_000), (100_000, 50_000));
        assert_eq!(counts(Limits::default(), 20_000), (20_000, 10_000));
        assert_eq!(counts(Limits::default(), 1), (1, 1));
        let behind_proxy = Limits { connections_per_peer: 15_000, ..Limits::default() };
        assert_eq!(counts(behind_proxy.clone(), 20_000), (20_000, 15_000));
        assert_eq!(counts(behind_proxy, 15_000), (15_000, 7_500));
    }
}

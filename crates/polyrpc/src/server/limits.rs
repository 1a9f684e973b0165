use std::io;
use std::time::Duration;

use polyrpc_core::session::SlowPeerGuard;

use super::memory;

/// What one peer, one connection and all of them together may use of a server.
///
/// Every length a peer announces, every byte it makes the server hold, every wait and every queue is bounded by one of
/// these. `docs/security.md` lists them with what a peer sees when it reaches one.
///
/// [`Server::bind`](super::Server::bind) refuses a limit of zero that no call or no connection could keep to. Zero is taken
/// where it has a meaning: no streams ([`streams`](Self::streams), [`streams_per_peer`](Self::streams_per_peer)), no lowest
/// rate ([`message_rate`](Self::message_rate)), no patience ([`half_close_timeout`](Self::half_close_timeout),
/// [`connection_age_grace`](Self::connection_age_grace), [`credential_failures`](Self::credential_failures)), and nothing
/// forgiven ([`Http2::resets`], [`Http2::resets_per_second`]).
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
    /// Bytes of one message on the wire. 64 MiB.
    ///
    /// A longer one is refused: with `resource_exhausted` where the call can still be answered, by the end of the
    /// connection elsewhere.
    pub message: usize,
    /// Bytes of one message after decompression. 64 MiB.
    pub decompressed: usize,
    /// Bytes of an HTTP head or of an HTTP/2 header list. 64 KiB.
    ///
    /// A longer one is answered with 431, in gRPC with `resource_exhausted`; other calls of the connection go on.
    pub header: usize,

    /// Bytes that all peers together may make the server hold: requests that are incomplete or wait for a handler,
    /// decompressed messages, replies and pushes that were not read, queued messages of streams, subscriptions. A quarter of the
    /// memory that the process may use, at most 1 GiB.
    ///
    /// Near this bound connections that hold much are not read any more and their new calls are refused with
    /// `resource_exhausted`; beyond it the largest holder's connection is closed.
    pub memory: usize,
    /// Of [`memory`](Self::memory), the bytes that one peer address may hold. Half of it, but enough for one
    /// connection.
    pub memory_per_peer: usize,
    /// Of [`memory`](Self::memory), the bytes that one connection may hold. 160 MiB: a message of 64 MiB, decompressed
    /// to 64 MiB more, and room for its answer to begin.
    pub memory_per_connection: usize,
    /// Bytes of answers that one client may leave unread; then its calls are not read any more. 4 MiB.
    pub unsent: usize,

    /// Open connections. 100,000, and no more than the process may have file descriptors for.
    ///
    /// One more is closed at once. Shortly before, connections that have sent nothing yet make room, or else those that
    /// have done nothing for longest, or else those on which nothing moves, of the address that has most of them.
    pub connections: usize,
    /// Open connections from one peer address. 50,000, and at most half of what file descriptors allow. Shortly before,
    /// idle connections of this address make room, in the same order.
    pub connections_per_peer: usize,

    /// Calls whose handlers wait, over all connections. 65,536.
    ///
    /// A call counts from when its message is whole, and not if its handler answers without waiting. One more is refused
    /// with `resource_exhausted`, unless it asks the server about itself (health, reflection, pages). The last quarter is
    /// shared: a connection takes from it only up to an equal share.
    pub in_flight: usize,
    /// Calls whose handlers wait for one peer address. 49,152.
    pub in_flight_per_peer: usize,
    /// Calls whose handlers wait for one connection; then it is not read any more. 4,096.
    pub in_flight_per_connection: usize,

    /// Open streams, over all connections: calls with several messages in a direction. 65,536, the last quarter shared
    /// as for [`in_flight`](Self::in_flight).
    pub streams: usize,
    /// Open streams of one peer address. 49,152.
    pub streams_per_peer: usize,
    /// Open streams of one connection. 1,024. HTTP/2 announces it as `MAX_CONCURRENT_STREAMS`, where unary calls
    /// count too.
    pub streams_per_connection: usize,

    /// How long a new connection may be silent. 2 minutes.
    pub first_byte_timeout: Duration,
    /// How long a connection may take to show its protocol, to do a TLS handshake, and to send an HTTP head. It is also
    /// the interval after which [`message_rate`](Self::message_rate) is judged, and how long an incomplete message waits
    /// for room in the memory budget. 10 s.
    pub header_timeout: Duration,
    /// How long one message may take from its first byte to its last. 2 minutes.
    ///
    /// A stream of HTTP/2 that exceeds it fails with `deadline_exceeded`; in the other protocols, where nothing can
    /// follow an incomplete message, the connection ends.
    pub message_timeout: Duration,
    /// Bytes a second that an incomplete message must bring, as the mean over each
    /// [`header_timeout`](Self::header_timeout). 1 KiB.
    pub message_rate: usize,
    /// How long a peer may take nothing of what is to be sent to it, whether the socket is full or its windows are closed.
    /// 30 s.
    pub write_timeout: Duration,
    /// How long calls may go on whose peer has closed its half of the connection: it may still read, or be gone. 5 s.
    pub half_close_timeout: Duration,
    /// How long a connection may do nothing. `None`: forever. 10 minutes. Clients that would not hear of an end (over KCP)
    /// or make no other connection (Go's of `net/rpc`, once they have called), or cannot say that they are there
    /// (subscribers of rest_rpc from v0.21 on) may for as long as they are there.
    pub idle_timeout: Option<Duration>,
    /// How long an open stream may go without a message in either direction. `None`: forever. 1 hour.
    pub stream_idle_timeout: Option<Duration>,
    /// How long a call with one message each way may take, also where its caller says no deadline, or its protocol has no
    /// place for one (net/rpc, rest_rpc, fb_rpc); an earlier deadline holds. `None`, the default: as long as its caller
    /// waits.
    pub call_timeout: Option<Duration>,
    /// How long a connection may exist; then it is drained as on shutdown. Varied by up to a tenth, so that clients do
    /// not come back all at once. `None`, the default: for as long as its peer wants.
    pub connection_age: Option<Duration>,
    /// How long a connection that reached its [age](Self::connection_age) may still finish its calls. 30 s.
    pub connection_age_grace: Duration,

    /// How long an [authenticator](super::Listen::authenticate_async) may take. 10 s.
    pub authentication_timeout: Duration,
    /// Failed credentials from one peer address before each further one is answered late, by a second. One is forgiven
    /// each second. 10.
    pub credential_failures: u32,

    /// What is particular to HTTP/2.
    pub http2: Http2,

    /// Streams and files that were granted and not begun (`transfer`); one more ends the oldest. 1,024.
    pub tokens: usize,
    /// How long a stream or a file that was granted may be begun. 30 s.
    pub token_timeout: Duration,
}

/// What is particular to HTTP/2, and so to gRPC.
#[derive(Debug, Clone)]
pub struct Http2 {
    /// Bytes that a stream may send before they are taken, at first (`INITIAL_WINDOW_SIZE`). 64 KiB.
    pub stream_window: u32,
    /// What a stream's window may grow to while its messages are taken as fast as they come. 4 MiB.
    pub max_stream_window: u32,
    /// Bytes that all streams of a connection may send before they are taken. 16 MiB.
    pub connection_window: u32,
    /// Bytes of one frame (`MAX_FRAME_SIZE`). 16 KiB, the least that the protocol allows.
    pub frame: u32,
    /// Streams that a peer may reset, or make the server reset, in one burst. 1,000. Streams that end well make up for
    /// those that do not.
    ///
    /// A peer that goes beyond is sent GOAWAY `ENHANCE_YOUR_CALM`.
    pub resets: u32,
    /// How many resets are forgiven each second. 100.
    pub resets_per_second: u32,
    /// How long a connection with open streams, or answers that wait for windows, may be silent before the server sends a PING. `None`: never. 5 minutes.
    pub keepalive_interval: Option<Duration>,
    /// How long the peer may take to answer that PING; then the connection is closed. 20 s.
    pub keepalive_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let wire = polyrpc_core::Limits::default();
        let memory = memory::default_budget();
        let memory_per_connection = MEMORY_PER_CONNECTION.min(memory);
        Self {
            message: wire.message,
            decompressed: wire.decompressed,
            header: wire.header,
            memory,
            memory_per_peer: (memory / 2).max(memory_per_connection),
            memory_per_connection,
            unsent: 4 << 20,
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
            message_rate: 1 << 10,
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
            tokens: 1024,
            token_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            stream_window: 64 << 10,
            max_stream_window: 4 << 20,
            connection_window: 16 << 20,
            frame: 16 << 10,
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
            max_stream_window,
            connection_window,
            frame,
            resets: _,
            resets_per_second: _,
            keepalive_interval,
            keepalive_timeout,
        } = self;
        let amounts = [
            ("stream_window", *stream_window as usize),
            ("max_stream_window", *max_stream_window as usize),
            ("connection_window", *connection_window as usize),
            ("frame", *frame as usize),
        ];
        let times = [("keepalive_timeout", *keepalive_timeout)];
        let optional_times = [("keepalive_interval", *keepalive_interval)];
        first_zero(&amounts, &times, &optional_times).map_or(Ok(()), |zero| Err(zero.of("Limits::http2")))
    }
}

/// A limit that must not be zero, and what to set instead.
struct Zero {
    name: &'static str,
    instead: &'static str,
}

impl Zero {
    fn of(&self, holder: &str) -> io::Error {
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
    /// Refuses limits of zero that would refuse everything or mean nothing.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with the name of the first such limit.
    pub(super) fn check(&self) -> io::Result<()> {
        // Every field by name: of a new one it must be decided here what zero means.
        let Self {
            message,
            decompressed,
            header,
            memory,
            memory_per_peer,
            memory_per_connection,
            unsent,
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
            message_rate: _,
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
            tokens,
            token_timeout,
        } = self;
        let amounts = [
            ("message", *message),
            ("decompressed", *decompressed),
            ("header", *header),
            ("memory", *memory),
            ("memory_per_peer", *memory_per_peer),
            ("memory_per_connection", *memory_per_connection),
            ("unsent", *unsent),
            ("connections", *connections),
            ("connections_per_peer", *connections_per_peer),
            ("in_flight", *in_flight),
            ("in_flight_per_peer", *in_flight_per_peer),
            ("in_flight_per_connection", *in_flight_per_connection),
            ("streams_per_connection", *streams_per_connection),
            ("tokens", *tokens),
        ];
        let times = [
            ("first_byte_timeout", *first_byte_timeout),
            ("header_timeout", *header_timeout),
            ("message_timeout", *message_timeout),
            ("write_timeout", *write_timeout),
            ("authentication_timeout", *authentication_timeout),
            ("token_timeout", *token_timeout),
        ];
        let optional_times = [
            ("idle_timeout", *idle_timeout),
            ("stream_idle_timeout", *stream_idle_timeout),
            ("call_timeout", *call_timeout),
            ("connection_age", *connection_age),
        ];
        first_zero(&amounts, &times, &optional_times).map_or(Ok(()), |zero| Err(zero.of("Limits")))?;
        http2.check()
    }

    /// No more connections than the process may have file descriptors for, less some for everything else.
    pub(super) fn within_system(self) -> Self {
        const OTHER_DESCRIPTORS: u64 = 64;
        let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let connections = open_files.map_or(usize::MAX, |limit| {
            limit.saturating_sub(OTHER_DESCRIPTORS).max(1).try_into().unwrap_or(usize::MAX)
        });
        if connections >= self.connections {
            return self;
        }
        // Else one address could take all that are left.
        let connections_per_peer = self.connections_per_peer.min((connections / 2).max(1));
        Self { connections, connections_per_peer, ..self }
    }

    pub(super) fn wire(&self) -> polyrpc_core::Limits {
        let pace = SlowPeerGuard {
            interval: self.header_timeout,
            rate: self.message_rate,
            whole: self.message_timeout,
        };
        polyrpc_core::Limits {
            message: self.message,
            decompressed: self.decompressed,
            header: self.header,
            pace,
        }
    }
}

//! A line-based text protocol, which shows the requests to a session in words.

use std::collections::HashMap;
use std::fmt::Write;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::{self, NotFound, Server as Session, ServerEvent};
use polyrpc_core::{
    Call, Compression, Format, Head, Message, Metadata, Outbox, Reply, Status, StreamId, Violation,
};
use polyrpc_wire::Protocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::call::{ConnectionFacts, Peer as From};
use crate::memory_budget::SharedUsage;
use crate::server::connection::{Connection, ConnectionParts, Driver};
use crate::server::connections::ConnectionRegistry;
use crate::server::listener_context::{ListenerContext, ListenerOptions, ListenerProtocols};
use crate::server::{Limits, Shared};
use crate::service::{Router, Service};
use crate::transport::{Address, Inbox, Stream, UpgradableStream};

/// The caller's end of a connection with this protocol.
pub(super) struct Peer {
    socket: UnixStream,
    pool: Arc<SharedUsage>,
    connection: JoinHandle<()>,
}

impl Peer {
    pub(super) async fn new(service: impl Service) -> Self {
        Self::with_limits(Limits::default(), service).await
    }

    pub(super) async fn with_limits(limits: Limits, service: impl Service) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut router = Router::default();
        router.service(service);
        let limits = Arc::new(limits);
        let open = Arc::new(ConnectionRegistry::new(
            Default::default(),
            limits.clone(),
            Default::default(),
            Vec::new(),
            None,
        ));
        let pool = open.pool().clone();
        let shared = Shared {
            router,
            limits,
            cores: None,
            version: String::new(),
            cors: Default::default(),
            lame_duck: Default::default(),
            own_health: Default::default(),
            health: Arc::new(crate::introspection::DefaultHealth(Default::default())),
            publisher: Default::default(),
            compressors: Default::default(),
            data: None,
            open,
            hooks: Default::default(),
            subscription_layers: Default::default(),
            times_calls: false,
            exposes_errors: false,
            added: Vec::new(),
            metrics: None,
            started: std::time::SystemTime::now(),
        };
        let connection = tokio::spawn(serve(theirs, shared));
        Self { socket: ours, pool, connection }
    }

    pub(super) async fn send_frames(&mut self, lines: &str) {
        self.socket.write_all(lines.as_bytes()).await.unwrap();
    }

    /// Waits for these lines, which must be received next.
    pub(super) async fn expect_frames(&mut self, lines: &str) {
        let mut heard = vec![0; lines.len()];
        let mut at = 0;
        while at < heard.len() && lines.as_bytes()[..at] == heard[..at] {
            match self.socket.read(&mut heard[at..]).await.unwrap() {
                0 => break,
                n => at += n,
            }
        }
        assert_eq!(String::from_utf8_lossy(&heard[..at]), lines);
    }

    /// Returns the number of calls in progress.
    pub(super) fn calls(&self) -> usize {
        self.pool.calls() + self.pool.streams()
    }

    /// Writes junk until the connection is closed.
    pub(super) async fn flood(mut self) {
        while self.socket.write_all(&[b'x'; 4096]).await.is_ok() {}
        self.connection.await.unwrap();
    }

    /// Closes the socket and waits for the connection to end.
    pub(super) async fn close(self) {
        drop(self.socket);
        self.connection.await.unwrap();
    }
}

async fn serve(socket: UnixStream, shared: Shared) {
    let registration = shared.open.clone().try_register(From::InProcess).unwrap();
    let address = Address::Unix("lines".into());
    let listener = ListenerContext::new(
        Arc::new(shared),
        &ListenerProtocols::Sniffed(Vec::new()),
        None,
        None,
        &ListenerOptions::default(),
        address,
    );
    let facts = Arc::new(ConnectionFacts::new(Protocol::Rpcx, From::InProcess, None));
    let (mut stream, mut inbox) = (UpgradableStream::Socket(Stream::Unix(socket)), Inbox::default());
    let (stream, inbox) = (&mut stream, &mut inbox);
    let parts = ConnectionParts { stream, inbox, registration: &registration, listener: &listener, facts };
    let mut connection = Connection::new(parts, Lines::default());
    poll_fn(|cx| connection.poll_serve(cx)).await;
}

#[derive(Default)]
struct Lines {
    line: String,
    room: HashMap<StreamId, usize>,
    timeout: Option<Duration>,
}

struct Ticket(StreamId);

impl session::server::Ticket for Ticket {
    fn not_found_failure(&self, _: &Call<'_>, _: NotFound) -> Status {
        Status::unimplemented("unknown")
    }

    fn stream(&self) -> Option<StreamId> {
        Some(self.0)
    }
}

impl Session for Lines {
    type Ticket = Ticket;

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        _: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Ticket>>, Violation> {
        let Some(end) = inbox.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        self.line = String::from_utf8(inbox.split_to(end + 1).to_vec()).unwrap();
        let mut words = self.line.trim_end().splitn(4, ' ');
        let (verb, number) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
        let (stream, third) = (StreamId(number), words.next().unwrap_or_default());
        let body = Bytes::copy_from_slice(words.next().unwrap_or_default().as_bytes());
        let call = Call { timeout: self.timeout, ..Call::new("S", third, Format::Protobuf, body) };
        Ok(Some(match verb {
            // It is not an event of its own: reported as room for a stream that does not exist.
            "within" => {
                self.timeout = Some(Duration::from_millis(number));
                ServerEvent::Room(stream)
            }
            "room" => {
                *self.room.entry(stream).or_default() += third.parse::<usize>().unwrap();
                ServerEvent::Room(stream)
            }
            "call" => ServerEvent::Call(call, Ticket(stream)),
            "open" => ServerEvent::Open(call, Ticket(stream), stream),
            "message" => {
                let body = Bytes::copy_from_slice(third.as_bytes());
                ServerEvent::Message(stream, Message { body, compression: Compression::None })
            }
            "end" => ServerEvent::End(stream),
            "cancel" => ServerEvent::Cancelled(stream),
            other => return Err(Violation::new(other)),
        }))
    }

    fn reply(&mut self, Ticket(stream): Ticket, reply: Reply, out: &mut Outbox) {
        match reply.result {
            Ok(body) => send_frames(out, format_args!("reply {} {}", stream.0, text(&body))),
            Err(status) => send_frames(out, format_args!("failed {} {}", stream.0, status.code())),
        }
    }

    fn reject(&mut self, ticket: Ticket, status: Status, out: &mut Outbox) -> bool {
        self.reply(ticket, Reply::failure(status), out);
        false
    }

    fn bytes_needed(&self) -> usize {
        0
    }

    fn drain(&mut self, _: &mut Outbox) {}

    fn streaming(&mut self) -> Option<&mut impl session::server::Streaming<Ticket>> {
        Some(self)
    }
}

impl session::server::Housekeeping for Lines {}

impl session::server::Streaming<Ticket> for Lines {
    fn start_response(&mut self, stream: StreamId, head: Head, out: &mut Outbox) {
        send_frames(out, format_args!("begin {}{}", stream.0, pairs(&head.metadata)));
    }

    fn send_message(&mut self, stream: StreamId, message: Bytes, out: &mut Outbox) {
        let room = self.room.entry(stream).or_default();
        *room = room.saturating_sub(1);
        send_frames(out, format_args!("message {} {}", stream.0, text(&message)));
    }

    fn finish(
        &mut self,
        Ticket(stream): Ticket,
        result: Result<(), Status>,
        trailers: Metadata,
        out: &mut Outbox,
    ) {
        let how = result.map_or_else(|status| status.code().as_str(), |()| "ok");
        send_frames(out, format_args!("finish {} {how}{}", stream.0, pairs(&trailers)));
    }

    fn has_room(&self, stream: StreamId) -> bool {
        self.room.get(&stream).is_some_and(|&room| room > 0)
    }

    fn record_consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Outbox) {
        send_frames(out, format_args!("consumed {} {bytes}", stream.0));
    }
}

fn send_frames(out: &mut Outbox, line: std::fmt::Arguments<'_>) {
    out.extend_from_slice(format!("{line}\n").as_bytes());
}

fn text(body: &Bytes) -> &str {
    std::str::from_utf8(body).unwrap()
}

fn pairs(metadata: &Metadata) -> String {
    let mut pairs = String::new();
    for (key, value) in metadata.iter() {
        write!(pairs, " {key}={}", text(value)).unwrap();
    }
    pairs
}

//! Line-based test protocol, which writes out what a session is asked to do, and a server for it.

use std::collections::HashMap;
use std::fmt::Arguments;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::client::Streaming;
use polyrpc_core::session::{Client as Session, ClientEvent};
use polyrpc_core::{
    Call, CallId, Code, Compression, Format, Head, Message, Metadata, Outbox, Reply, Retry, Scope, Status,
    Violation,
};
use polyrpc_wire::Protocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Client;
use crate::client::connection::connector::Connector;
use crate::client::connection::sessions::sessions;
use crate::client::connection::{ConnectGate, Keepalive};
use crate::client::pool::Pool;
use crate::client::url::Url;
use crate::client::{Backend, Builder, ConnectionMode};
use crate::transport::Address;

/// Listener that a client under test connects to.
pub(super) struct TestListener {
    listener: TcpListener,
}

impl TestListener {
    pub(super) async fn new() -> Self {
        Self::at("127.0.0.1:0").await
    }

    /// Listens at this address.
    pub(super) async fn at(address: &str) -> Self {
        Self { listener: TcpListener::bind(address).await.unwrap() }
    }

    /// Creates a client that resends calls which a server did not process.
    pub(super) fn client(&self, builder: Builder) -> Client {
        let mut defaults = builder.defaults(&self.url());
        defaults.retains_calls = true;
        let connector = Connector {
            url: self.url(),
            transport: Default::default(),
            tls: None,
            sessions: sessions(Lines::default),
            connect_timeout: builder.connect_timeout,
            gate: ConnectGate::new(self.url().address, builder.connect_backoff.unwrap_or_default()).into(),
            cores: None,
            keepalive: builder.keepalive.map(Keepalive::with_interval),
            on_push: None,
            hooks: Default::default(),
            memory: None,
            calls: Default::default(),
        };
        let pool = Pool::new(connector, ConnectionMode::Shared, builder.pool_limits);
        Client {
            backend: Backend::Network(pool.into()),
            defaults: defaults.into(),
            layers: Default::default(),
        }
    }

    pub(super) fn url(&self) -> Url {
        let address = Address::Tcp(self.listener.local_addr().unwrap().to_string());
        Url { address, ..Url::without_server(Protocol::Rpcx) }
    }

    /// Accepts the next connection.
    pub(super) async fn accept(&self) -> Peer {
        Peer { socket: self.listener.accept().await.unwrap().0 }
    }
}

/// Server side of a connection of the line protocol.
pub(super) struct Peer {
    socket: TcpStream,
}

impl Peer {
    pub(super) async fn send_frames(&mut self, lines: &str) {
        self.socket.write_all(lines.as_bytes()).await.unwrap();
    }

    /// Waits for these lines, which must come next.
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

    /// Reads some bytes; `false` at the end.
    pub(super) async fn read(&mut self) -> bool {
        self.socket.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0)
    }

    /// Waits until the client closes the connection without sending anything more.
    pub(super) async fn hears_the_end(&mut self) {
        let mut rest = Vec::new();
        self.socket.read_to_end(&mut rest).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}

/// Calls are numbered in the order in which they are made. The server may send:
///
/// ```text
/// head 0 key=value     message 0 text     end 0 key=value     fail 0 text     reply 0 text
/// room 0 3             tight              most 2              refuse 0        goaway
/// gzip 0 text
/// ```
#[derive(Default)]
pub(crate) struct Lines {
    calls: Vec<CallId>,
    /// Number of further messages of a call that the server accepts, where it has announced one.
    room: HashMap<CallId, usize>,
    /// Whether the server accepts a call's messages only if it has announced capacity.
    tight: bool,
    most: Option<usize>,
}

impl Session for Lines {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        self.calls.push(id);
        send_frames(out, format_args!("call {} {} {}", self.calls.len() - 1, call.method, text(&call.body)));
        Ok(())
    }

    fn next_event(&mut self, inbox: &mut BytesMut, _: &mut Outbox) -> Result<Option<ClientEvent>, Violation> {
        loop {
            let Some(end) = inbox.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
            let line = String::from_utf8(inbox.split_to(end + 1).to_vec()).unwrap();
            let mut words = line.trim_end().splitn(3, ' ');
            let verb = words.next().unwrap_or_default();
            let number: usize = words.next().map_or(0, |number| number.parse().unwrap());
            let rest = words.next().unwrap_or_default();
            match self.understand(verb, number, rest) {
                Ok(None) => {}
                answer => return answer,
            }
        }
    }

    fn cancel(&mut self, id: CallId, out: &mut Outbox) {
        send_frames(out, format_args!("cancel {}", self.number(id)));
    }

    fn bytes_needed(&self) -> usize {
        0
    }

    fn concurrency(&self) -> usize {
        self.most.unwrap_or(usize::MAX)
    }

    fn heartbeat(&mut self, out: &mut Outbox) -> bool {
        send_frames(out, format_args!("alive?"));
        true
    }

    fn streaming(&mut self) -> Option<&mut dyn Streaming> {
        Some(self)
    }
}

impl Streaming for Lines {
    fn open(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        self.calls.push(id);
        send_frames(out, format_args!("open {} {}", self.calls.len() - 1, call.method));
        Ok(())
    }

    fn send_message(&mut self, id: CallId, message: Bytes, out: &mut Outbox) {
        if let Some(room) = self.room.get_mut(&id) {
            *room = room.saturating_sub(1);
        }
        send_frames(out, format_args!("message {} {}", self.number(id), text(&message)));
    }

    fn end(&mut self, id: CallId, out: &mut Outbox) {
        send_frames(out, format_args!("end {}", self.number(id)));
    }

    fn half_closes(&mut self) -> bool {
        true
    }

    fn has_room(&mut self, id: CallId) -> bool {
        self.room.get(&id).map_or(!self.tight, |&room| room > 0)
    }

    fn record_consumed(&mut self, id: CallId, bytes: usize, out: &mut Outbox) {
        send_frames(out, format_args!("consumed {} {bytes}", self.number(id)));
    }
}

impl Lines {
    fn understand(
        &mut self,
        verb: &str,
        number: usize,
        rest: &str,
    ) -> Result<Option<ClientEvent>, Violation> {
        let body = Bytes::copy_from_slice(rest.as_bytes());
        let id = self.calls.get(number).copied().unwrap_or(CallId(u64::MAX));
        let head = Head { format: Format::Raw, metadata: pairs(rest), ..Head::default() };
        Ok(Some(match verb {
            "tight" => {
                self.tight = true;
                return Ok(None);
            }
            "most" => {
                self.most = Some(number);
                return Ok(None);
            }
            "room" => {
                self.room.insert(id, rest.parse().unwrap());
                ClientEvent::Room(id)
            }
            "head" => ClientEvent::Head(id, head),
            "message" => ClientEvent::Message(id, Message { body, compression: Compression::None }),
            "gzip" => ClientEvent::Message(id, Message { body, compression: Compression::Gzip }),
            "end" => {
                let reply = Reply::message(Format::Raw, Bytes::new());
                ClientEvent::Reply(id, Reply { trailers: pairs(rest), ..reply })
            }
            "reply" => ClientEvent::Reply(id, Reply::message(Format::Raw, body)),
            "fail" => {
                let trailers = [("failed", "yes")].into_iter().collect();
                let failure = Reply::failure(Status::new(Code::Aborted, rest.to_owned()));
                ClientEvent::Reply(id, Reply { trailers, ..failure })
            }
            "refuse" => {
                let status = Status::unavailable("refused").with_scope(Scope::Connection);
                ClientEvent::Reply(id, Reply::failure(status.with_retry(Retry::Elsewhere)))
            }
            "goaway" => ClientEvent::GoAway,
            "alive" => ClientEvent::Alive,
            other => return Err(Violation::new(other)),
        }))
    }

    fn number(&self, id: CallId) -> usize {
        self.calls.iter().position(|&known| known == id).unwrap()
    }
}

fn send_frames(out: &mut Outbox, line: Arguments<'_>) {
    out.extend_from_slice(format!("{line}\n").as_bytes());
}

fn text(body: &Bytes) -> &str {
    std::str::from_utf8(body).unwrap()
}

fn pairs(text: &str) -> Metadata {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

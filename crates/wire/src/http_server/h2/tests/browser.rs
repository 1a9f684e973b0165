//! A client that supports HTTP/2 but not gRPC.

use polyrpc_core::session::Verdict;

use super::*;
use crate::http::h2::hpack::encode_stateless;
use crate::http::h2::{self, Connection};

pub(super) type Field<'a> = (&'a str, &'a str);

/// A client that only supports HTTP/2.
pub(super) struct Browser {
    pub(super) http: Connection,
    pub(super) server: Server,
    pub(super) up: Outbox,
    pub(super) down: Outbox,
    pub(super) inbox: BytesMut,
    pub(super) outbox: BytesMut,
}

/// The fields of a response's head, with its status first, and its data.
pub(super) type Answer = (Vec<String>, Vec<u8>);

impl Browser {
    pub(super) fn new(config: ServerConfig) -> Self {
        Self {
            http: Connection::client(Default::default()),
            server: Server::new(config.into()),
            up: Outbox::new(),
            down: Outbox::new(),
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
        }
    }

    pub(super) fn ask(&mut self, method: &str, path: &str, fields: &[Field<'_>], pieces: &[&[u8]]) {
        let stream = self.http.open(&block(method, path, fields), pieces.is_empty(), &mut self.up);
        for (at, piece) in pieces.iter().enumerate() {
            let end = at + 1 == pieces.len();
            self.http.data(stream, b"", Bytes::copy_from_slice(piece), end, &mut self.up);
        }
    }

    /// Passes pending output to the server, which answers each complete call as `handle` does.
    pub(super) fn serve(
        &mut self,
        mut handle: impl FnMut(&mut Server, Ticket, Bytes, &mut Outbox),
    ) -> Vec<String> {
        self.inbox.extend_from_slice(&self.up.take());
        let (mut recorded, mut open, mut whole) = (Vec::new(), None, None);
        while let Some(event) = self.server.next_event(&mut self.inbox, &mut self.down).unwrap() {
            recorded.push(polyrpc_core::testing::describe_event(&event));
            let done = match event {
                ServerEvent::Head(_, stream) => {
                    self.server.apply_verdict(stream, Verdict::Accepted, &mut self.down);
                    None
                }
                ServerEvent::Call(call, ticket) => Some((ticket, call.body)),
                ServerEvent::Open(_, ticket, _) => {
                    open = Some(ticket);
                    None
                }
                ServerEvent::Message(_, message) => {
                    whole = Some(message.body);
                    None
                }
                ServerEvent::End(_) => open.take().zip(whole.take()),
                _ => None,
            };
            if let Some((ticket, body)) = done {
                handle(&mut self.server, ticket, body, &mut self.down);
            }
        }
        recorded
    }

    pub(super) fn answer(&mut self) -> Answer {
        self.outbox.extend_from_slice(&self.down.take());
        let (mut head, mut data) = (Vec::new(), Vec::new());
        while let Some(event) = self.http.next_event(&mut self.outbox, &mut self.up).unwrap() {
            match event {
                h2::Event::Headers { fields, .. } => {
                    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                    head = fields.iter().map(|(name, value)| text(name) + ": " + &text(value)).collect();
                }
                h2::Event::Data { bytes, .. } => data.extend_from_slice(&bytes),
                _ => {}
            }
        }
        (head, data)
    }
}

pub(super) fn block(method: &str, path: &str, fields: &[Field<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    let pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "h")];
    let all = pseudo.iter().chain(fields).map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    encode_stateless(all, &mut block);
    block
}

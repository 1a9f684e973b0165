//! Tests by topic, and shared helpers.

mod client;
mod framing;
mod gateway;
mod grpc_web;
mod http_rules;
mod json_rpc;
mod mapping;
mod order;
mod peek;
mod upgrade;
mod vectors;
mod verdicts;
mod web_client;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Server as _;
use polyrpc_core::session::server::{Housekeeping as _, Streaming as _, Ticket as _};
use polyrpc_core::session::{ServerEvent, Verdict};
use polyrpc_core::{Call, Json, Limits, Outbox, Reply, Status};

use super::{Server, Ticket};
use crate::http::ServerConfig;

fn config() -> Arc<ServerConfig> {
    Arc::new(ServerConfig {
        limits: Limits { message: 64 << 10, decompressed: 64 << 10, header: 4 << 10, ..Limits::default() },
        address: "127.0.0.1:18001".to_owned(),
        version: "Impl".to_owned(),
        ..ServerConfig::default()
    })
}

fn server() -> Server {
    Server::new(config())
}

/// Creates a server that accepts the same requests as brpc.
fn lenient() -> Server {
    Server::new(Arc::new(ServerConfig {
        lenient: true,
        json: Some(Json::BrpcLenient),
        ..(*config()).clone()
    }))
}

/// Creates a server whose connections may switch to other protocols.
fn switching() -> Server {
    Server::new(Arc::new(ServerConfig { switches: true, ..(*config()).clone() }))
}

/// A server session with its inbox and outbox.
struct TestConnection {
    server: Server,
    inbox: BytesMut,
    out: Outbox,
}

impl TestConnection {
    fn new() -> Self {
        Self { server: server(), inbox: BytesMut::new(), out: Outbox::new() }
    }

    /// Creates one with a server as lenient as brpc.
    fn lenient() -> Self {
        Self { server: lenient(), ..Self::new() }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.inbox.extend_from_slice(bytes.as_ref());
        self
    }

    /// Returns the next call, if there is one.
    fn call(&mut self) -> Option<(Call<'static>, Ticket)> {
        loop {
            match self.server.next_event(&mut self.inbox, &mut self.out).expect("no violation") {
                Some(ServerEvent::Call(call, ticket)) => return Some((into_owned_call(call), ticket)),
                Some(ServerEvent::Head(_, stream)) => {
                    self.server.apply_verdict(stream, Verdict::Accepted, &mut self.out);
                }
                Some(_) => panic!("not a call"),
                None => return None,
            }
        }
    }

    /// Returns all received calls.
    fn calls(&mut self) -> Vec<(Call<'static>, Ticket)> {
        std::iter::from_fn(|| self.call()).collect()
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> &mut Self {
        self.server.reply(ticket, reply, &mut self.out);
        self
    }

    /// Answers all received calls.
    fn serve(&mut self, handler: impl Fn(&Call<'_>) -> Reply) -> Vec<u8> {
        self.serve_with_ticket(|call, _| handler(call))
    }

    /// Does the same for a handler that uses the ticket.
    fn serve_with_ticket(&mut self, handler: impl Fn(&Call<'_>, &Ticket) -> Reply) -> Vec<u8> {
        while let Some((call, ticket)) = self.call() {
            let reply = handler(&call, &ticket);
            self.reply(ticket, reply);
        }
        self.out.take()
    }

    /// Returns the output as text.
    fn output(&mut self) -> String {
        String::from_utf8(self.out.take()).expect("text")
    }
}

/// Returns the response of a new server to `bytes`, with calls answered by `handler`.
fn answer(bytes: impl AsRef<[u8]>, handler: impl Fn(&Call<'_>) -> Reply) -> Response {
    let mut connection = TestConnection::new();
    let out = connection.send(bytes).serve(handler);
    assert!(connection.inbox.is_empty(), "the whole request is read");
    Response::parse(&out)
}

/// Returns the response of a new server that makes no call.
fn refuse(bytes: impl AsRef<[u8]>) -> (Response, bool) {
    let mut connection = TestConnection::new();
    let out = connection.send(bytes).serve(|call| panic!("unexpected {call:?}"));
    (Response::parse(&out), connection.server.is_finished())
}

/// Returns the body of the call.
fn echo(call: &Call<'_>) -> Reply {
    Reply::message(call.head.format, call.body.clone())
}

fn failing(status: Status) -> impl Fn(&Call<'_>) -> Reply {
    move |_| Reply::failure(status.clone())
}

fn post(path: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Returns a request without a body.
fn bare(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// A parsed response.
#[derive(Debug)]
struct Response {
    status: u16,
    fields: Vec<(String, String)>,
    body: Bytes,
}

impl Response {
    /// Parses the only response in `bytes`.
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, _) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
        let body = Bytes::copy_from_slice(&bytes[head.len() + 4..]);
        let mut lines = head.split("\r\n");
        let status = lines.next().expect("a status line").split(' ').nth(1).expect("a status");
        let fields = lines.map(|line| line.split_once(": ").expect("a field"));
        let response = Self {
            status: status.parse().expect("a number"),
            fields: fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect(),
            body,
        };
        let length = response.field("content-length").map_or(0, |length| length.parse().expect("a length"));
        assert_eq!(response.body.len(), length, "one response and nothing more in {text:?}");
        response
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

fn into_owned_call(call: Call<'_>) -> Call<'static> {
    Call {
        service: call.service.to_owned().leak(),
        method: call.method.to_owned().leak(),
        body: call.body,
        attachment: call.attachment,
        head: call.head,
        timeout: call.timeout,
        oneway: call.oneway,
        credential: call.credential,
        authenticated: call.authenticated,
        malformed: call.malformed,
    }
}

//! A custom protocol next to the built-in ones on the same port: calls and replies are lines of text.
//!
//! ```text
//! CALL 1 add [1,2]          OK 1 3
//! CALL 2 half 3             ERR 2 unknown: 3 is odd
//! ```
//!
//! A session is a state machine without a socket: bytes go in, calls come out. So it can be tested without a network,
//! as at the end of this file.

use bytes::BytesMut;
use polyrpc::{Bytes, Client, Code, Compression, Format, Json, Result, Server, Status};
use polyrpc_core::protocol::{Parameter, Parameters, Scheme, by_magic};
use polyrpc_core::session::{self, ClientEvent, NotFound, ServerEvent};
use polyrpc_core::{Call, CallId, Descriptor, Detection, Limits, Outbox, Reply, Violation};

/// Descriptor of the protocol for servers and clients.
pub(crate) static LINES: Descriptor = Descriptor {
    schemes: &[Scheme::new("lines")],
    parameters: &[Parameter::new("end", &["lf", "crlf"], "end of a client's lines")],
    prefer: |_| JSON,
    ..Descriptor::new("lines", recognise)
};

const JSON: Format = Format::Json(Json::Go);

fn recognise(start: &[u8]) -> Detection {
    by_magic(b"CALL ", start)
}

/// Takes a line from the inbox; returns `None` if there is no complete one.
fn next_line(inbox: &mut BytesMut, limits: &Limits) -> Result<Option<String>, Violation> {
    match inbox.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = inbox.split_to(end + 1);
            let text = std::str::from_utf8(&line).map_err(|_| Violation::new("a line is no text"))?;
            Ok(Some(text.trim_end().to_owned()))
        }
        None if inbox.len() > limits.message => {
            Err(Violation::message_too_large(inbox.len(), limits.message))
        }
        None => Ok(None),
    }
}

/// Splits the number of a call from a line.
fn numbered(line: &str) -> Result<(u64, &str), Violation> {
    let (number, rest) = line.split_once(' ').unwrap_or((line, ""));
    let number = number.parse().map_err(|_| Violation::new("a line has no number"))?;
    Ok((number, rest))
}

/// Server session of a connection.
pub(crate) struct LineServer {
    limits: Limits,
    /// The last line, which the call borrows.
    line: String,
    draining: bool,
}

impl LineServer {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), line: String::new(), draining: false }
    }
}

/// Number of a call, which its reply needs.
pub(crate) struct Ticket(u64);

impl session::server::Ticket for Ticket {
    fn not_found_failure(&self, call: &Call<'_>, _: NotFound) -> Status {
        Status::unimplemented(format!("there is no {}", call.method))
    }
}

impl session::Server for LineServer {
    type Ticket = Ticket;

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Ticket>>, Violation> {
        let Some(line) = next_line(inbox, &self.limits)? else { return Ok(None) };
        self.line = line;
        let rest = self.line.strip_prefix("CALL ").ok_or_else(|| Violation::new("no line begins so"))?;
        let (number, rest) = numbered(rest)?;
        if self.draining {
            fail(number, &Status::unavailable("the server is going away"), out);
            // The rest of the inbox is handled in the next turn.
            return Ok(Some(ServerEvent::Pause));
        }
        let (target, body) = rest.split_once(' ').unwrap_or((rest, "null"));
        let (service, method) = target.rsplit_once('/').unwrap_or(("", target));
        let body = Bytes::copy_from_slice(body.as_bytes());
        let mut call = Call::new(service, method, JSON, body);
        call.head.positional = call.body.starts_with(b"[");
        Ok(Some(ServerEvent::Call(call, Ticket(number))))
    }

    fn reply(&mut self, Ticket(number): Ticket, reply: Reply, out: &mut Outbox) {
        match reply.result {
            Ok(body) => {
                out.extend_from_slice(format!("OK {number} ").as_bytes());
                out.body(body);
                out.extend_from_slice(b"\n");
            }
            Err(status) => fail(number, &status, out),
        }
    }

    fn reject(&mut self, Ticket(number): Ticket, status: Status, out: &mut Outbox) -> bool {
        fail(number, &status, out);
        false
    }

    fn bytes_needed(&self) -> usize {
        // Lines have no length prefix.
        0
    }

    fn drain(&mut self, _: &mut Outbox) {
        self.draining = true;
    }
}

// The session keeps nothing between events: no buffer, no timeout.
impl session::server::Housekeeping for LineServer {}

fn fail(number: u64, status: &Status, out: &mut Outbox) {
    let message = status.message().replace(['\r', '\n'], " ");
    out.extend_from_slice(format!("ERR {number} {}: {message}\n", status.code()).as_bytes());
}

/// Client session of a connection.
pub(crate) struct LineClient {
    limits: Limits,
    credential: Option<Bytes>,
    end: &'static [u8],
}

impl LineClient {
    pub(crate) fn new(limits: &Limits, credential: Option<&Bytes>) -> Self {
        Self { limits: limits.clone(), credential: credential.cloned(), end: b"\n" }
    }

    /// Applies the parameters of the URL, which were checked against the descriptor.
    pub(crate) fn with(self, parameters: &Parameters) -> Self {
        Self { end: if parameters.has("end", "crlf") { b"\r\n" } else { b"\n" }, ..self }
    }
}

impl session::Client for LineClient {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        // Features that a line cannot express are rejected, not silently ignored.
        let has_credential = self.credential.is_some() || call.credential.bytes().is_some();
        let is_compressed = call.head.compression != Compression::None;
        let has_more = !call.attachment.is_empty() || !call.head.metadata.is_empty() || call.oneway;
        if has_credential || is_compressed || has_more {
            return Err(Status::invalid_argument("a line has room for a message and nothing else"));
        }
        if call.head.format != JSON || call.body.contains(&b'\n') {
            return Err(Status::invalid_argument("a line is JSON without line breaks"));
        }
        let slash = if call.service.is_empty() { "" } else { "/" };
        out.extend_from_slice(format!("CALL {} {}{slash}{} ", id.0, call.service, call.method).as_bytes());
        out.body(call.body);
        out.extend_from_slice(self.end);
        Ok(())
    }

    fn next_event(&mut self, inbox: &mut BytesMut, _: &mut Outbox) -> Result<Option<ClientEvent>, Violation> {
        let Some(line) = next_line(inbox, &self.limits)? else { return Ok(None) };
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let (number, rest) = numbered(rest)?;
        let reply = match verb {
            "OK" => Reply::message(JSON, Bytes::copy_from_slice(rest.as_bytes())),
            "ERR" => {
                let failure = Status::new(Code::Unknown, rest.to_owned()).into_remote();
                Reply::failure(failure)
            }
            _ => return Err(Violation::new("no line begins so")),
        };
        Ok(Some(ClientEvent::Reply(CallId(number), reply)))
    }

    fn bytes_needed(&self) -> usize {
        0
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new()
        .function("add", |a: i32, b: i32| async move { a + b })
        .function("half", |n: i32| async move {
            if n % 2 == 0 { Ok(n / 2) } else { Err(Status::invalid_argument(format!("{n} is odd"))) }
        })
        .protocol(&LINES, |context| LineServer::new(context.limits))
        .bind("127.0.0.1:0")
        .await?
        .start();

    let client = Client::builder(&format!("lines://{}?end=crlf", server.address()))
        .protocol(&LINES, |context| {
            LineClient::new(&context.limits, context.credential.as_ref()).with(&context.dialect.parameters)
        })
        .build()?;
    println!("{}: 1 + 2 = {}", client.protocol().as_str(), client.call::<i32>("add", &(1, 2)).await?);
    if let Err(error) = client.call::<i32>("half", &3).await {
        println!("{}", error.message());
    }

    // The built-in protocols are served on the same port.
    let client = Client::new(&format!("rpcx://{}", server.address()))?;
    println!("{}: 1 + 2 = {}", client.protocol().as_str(), client.call::<i32>("add", &(1, 2)).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use polyrpc_core::session::{Client as _, Server as _};

    use super::*;

    #[test]
    fn call_and_response_are_lines() {
        let limits = Limits::default();
        let mut client = LineClient::new(&limits, None);
        let mut server = LineServer::new(&limits);
        let (mut sent, mut answered) = (Outbox::new(), Outbox::new());

        client.send(CallId(7), Call::new("", "add", JSON, "[1,2]".into()), &mut sent).unwrap();
        let line = sent.take();
        assert_eq!(line, b"CALL 7 add [1,2]\n");

        // An incomplete line is not a call.
        let mut inbox = BytesMut::from(&line[..9]);
        assert!(server.next_event(&mut inbox, &mut answered).unwrap().is_none());
        inbox.extend_from_slice(&line[9..]);
        let Ok(Some(ServerEvent::Call(call, ticket))) = server.next_event(&mut inbox, &mut answered) else {
            panic!("it is a call");
        };
        assert_eq!((call.method, &call.body[..], ticket.0), ("add", &b"[1,2]"[..], 7));

        server.reply(ticket, Reply::message(JSON, "3".into()), &mut answered);
        let mut inbox = BytesMut::from(&answered.take()[..]);
        let Ok(Some(ClientEvent::Reply(id, reply))) = client.next_event(&mut inbox, &mut sent) else {
            panic!("it is an answer");
        };
        assert_eq!((id, reply.result.unwrap()), (CallId(7), Bytes::from("3")));
    }

    #[test]
    fn endless_line_is_rejected() {
        let limits = Limits { message: 8, ..Limits::default() };
        let mut server = LineServer::new(&limits);
        let mut inbox = BytesMut::from(&b"CALL 1 add"[..]);
        assert!(server.next_event(&mut inbox, &mut Outbox::new()).is_err());
    }
}

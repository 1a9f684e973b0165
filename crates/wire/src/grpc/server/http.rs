//! Requests of HTTP/2 that are none of gRPC: they are mapped to calls as those of HTTP/1 are.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{Found, Server, Ticket};
use crate::grpc::request::Unfit;
use crate::grpc_web;
use crate::h2::hpack::{Fields, Indexing, encode_stateless, stateless_field};
use crate::http1::ServerConfig;
use crate::http1::asked::{self, Answer, Asked, Entries, Form, Names};
use crate::http1::frame::Refusal;
use crate::http1::head::WriteHead;
use crate::http1::request::{Method, Request};
use crate::json_rpc;
use crate::session::{Event, Missing};
use crate::{Call, Outbox, Reply, Status};

/// What requests have left that were handed out.
#[derive(Debug, Default)]
pub(super) struct Calls {
    names: Names,
    /// Batches that are not answered yet, by their streams.
    batches: Vec<(u32, json_rpc::Batch)>,
    /// What is left of the batch that is being handed out.
    entries: Option<(Entries, Responding)>,
}

impl Calls {
    /// Nobody waits for this stream any more.
    pub(super) fn forget(&mut self, stream: u32) {
        self.batches.retain(|(known, _)| *known != stream);
    }

    /// Adds a response to its batch; all of them with the last.
    fn add(&mut self, stream: u32, response: &[u8]) -> Option<Vec<u8>> {
        let at = self.batches.iter().position(|(known, _)| *known == stream)?;
        let (_, batch) = self.batches.get_mut(at)?;
        batch.add(response);
        let whole = batch.finish()?;
        self.batches.swap_remove(at);
        Some(whole)
    }
}

/// A request that is not done with.
#[derive(Debug)]
pub(in crate::grpc) enum Incoming {
    /// Its body is not here yet.
    Body(Request, BytesMut),
    /// It came by HTTP/1 and asked for HTTP/2.
    Whole(Request, Bytes),
}

impl Incoming {
    /// Bytes of it that were not given out.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Body(_, body) => body.len(),
            Self::Whole(_, body) => body.len(),
        }
    }
}

/// Which form the answer to a call takes.
#[derive(Debug)]
pub(super) struct Owed {
    form: Reads,
    responding: Responding,
}

impl Owed {
    pub(super) fn may_be_empty(&self) -> bool {
        matches!(&self.form, Reads::Response(form) if form.may_be_empty())
    }

    /// The failure of the call if it names something that does not exist.
    pub(super) fn unknown(&self, call: &Call<'_>, missing: Missing) -> Status {
        match &self.form {
            Reads::Response(form) => form.unknown(call, missing),
            Reads::Entry(_) | Reads::Nothing => asked::unknown_to_rpcx(call, missing),
        }
    }
}

/// Who reads the answer to a call, and how.
#[derive(Debug)]
enum Reads {
    Response(Form),
    /// As one of several that leave together.
    Entry(json_rpc::Owed),
    /// Nobody.
    Nothing,
}

/// What every response to a request has in common.
#[derive(Debug, Clone)]
pub(super) struct Responding {
    config: Arc<ServerConfig>,
    /// The response has a head only.
    head_only: bool,
    /// A page of this origin may read it.
    origin: Option<Bytes>,
}

impl Server {
    /// A request has come, with as much of its body as is here.
    pub(super) fn http_request(
        &mut self,
        stream: u32,
        config: &Arc<ServerConfig>,
        request: Result<Request, Refusal>,
        body: Bytes,
        end: bool,
        out: &mut Outbox,
    ) -> Found {
        match request {
            Err(refusal) => self.http_refusal(stream, config, refusal, out),
            Ok(_) if body.len() > config.limits.message => {
                self.http_refusal(stream, config, Refusal::too_large(), out)
            }
            Ok(request) if end => self.http_whole(stream, config, request, body, out),
            Ok(request) => {
                if request.expects {
                    self.http.headers(stream, &Block::of("100").0, false, out);
                }
                let incoming = Incoming::Body(request, BytesMut::new());
                self.open.insert(stream, super::Incoming::Http(Box::new(incoming)));
                Found::Nothing
            }
        }
    }

    /// A piece of a request's body.
    pub(super) fn http_piece(&mut self, stream: u32, bytes: &Bytes, end: bool, out: &mut Outbox) -> Found {
        self.http.consumed(stream, bytes.len(), out);
        let Some(config) = self.config.gateway.clone() else { return Found::Nothing };
        let Some(body) = self.http_body(stream) else { return Found::Nothing };
        if bytes.len() > config.limits.message.saturating_sub(body.len()) {
            self.open.remove(&stream);
            return self.http_refusal(stream, &config, Refusal::too_large(), out);
        }
        body.extend_from_slice(bytes);
        if !end {
            return Found::Nothing;
        }
        match self.http_remove(stream) {
            Some(Incoming::Body(request, body)) => {
                self.http_whole(stream, &config, request, body.freeze(), out)
            }
            _ => Found::Nothing,
        }
    }

    /// What is here of a request's body.
    fn http_body(&mut self, stream: u32) -> Option<&mut BytesMut> {
        match self.open.get_mut(&stream)? {
            super::Incoming::Http(incoming) => match &mut **incoming {
                Incoming::Body(_, body) => Some(body),
                Incoming::Whole(..) => None,
            },
            super::Incoming::Messages(_) => None,
        }
    }

    fn http_remove(&mut self, stream: u32) -> Option<Incoming> {
        match self.open.remove(&stream)? {
            super::Incoming::Http(incoming) => Some(*incoming),
            super::Incoming::Messages(_) => None,
        }
    }

    /// A request is whole: answers it here, or makes a call of it.
    fn http_whole(
        &mut self,
        stream: u32,
        config: &Arc<ServerConfig>,
        request: Request,
        body: Bytes,
        out: &mut Outbox,
    ) -> Found {
        let origin = config.cors.origin(&request.metadata);
        let head_only = request.method == Method::Head;
        let responding = Responding { config: config.clone(), head_only, origin };
        match Asked::read(config, request, body, &mut self.http_calls.names) {
            Asked::Answer(Answer::Options(Some(_))) if responding.origin.is_none() => {
                self.http_answer(stream, &responding, Answer::Options(None), out)
            }
            Asked::Answer(answer) => self.http_answer(stream, &responding, answer, out),
            Asked::Call(call, form) => found(stream, call, Reads::Response(form), responding),
            Asked::Notify(call, answer) => {
                self.http_answer(stream, &responding, answer, out);
                found(stream, call, Reads::Nothing, responding)
            }
            Asked::Batch(entries, mut batch) => {
                match batch.finish() {
                    Some(response) => {
                        self.http_answer(stream, &responding, Answer::Json(response), out);
                    }
                    None => self.http_calls.batches.push((stream, batch)),
                }
                self.http_calls.entries = Some((entries, responding));
                self.taking = Some(stream);
                Found::Nothing
            }
        }
    }

    /// Hands out the next call of a batch, if there is one.
    pub(super) fn http_entry(&mut self, stream: u32) -> Found {
        let Calls { names, entries, .. } = &mut self.http_calls;
        if let Some((entries, responding)) = entries
            && let Some((call, owed)) = entries.next(names)
        {
            return found(stream, call, owed.map_or(Reads::Nothing, Reads::Entry), responding.clone());
        }
        *entries = None;
        self.taking = None;
        Found::Nothing
    }

    /// Takes up the request that asked for HTTP/2.
    pub(super) fn http_upgraded(&mut self, stream: u32, out: &mut Outbox) -> Found {
        self.taking = None;
        let Some(Incoming::Whole(mut request, body)) = self.http_remove(stream) else {
            return Found::Nothing;
        };
        self.http.greet(out);
        match (request.grpc.take().map(|grpc| *grpc), self.config.gateway.clone()) {
            (Some(Ok(call)), _) => self.whole(stream, Arc::new(call), body),
            (Some(Err(unfit)), _) => self.turn_away(stream, &as_fields(&request), unfit, out),
            (None, Some(gateway)) => self.http_whole(stream, &gateway, request, body, out),
            (None, None) => self.turn_away(stream, &as_fields(&request), Unfit::ContentType, out),
        }
    }

    /// The call that was found last, with its names.
    pub(super) fn http_call(&self, (call, ticket): (Call<'static>, Ticket)) -> Event<'_, Ticket> {
        let (service, method) = self.http_calls.names.parts();
        Event::Call(Call { service, method, ..call }, ticket)
    }

    pub(super) fn http_reply(&mut self, stream: u32, owed: Owed, reply: Reply, out: &mut Outbox) {
        let Owed { form, responding } = owed;
        match form {
            Reads::Response(form) => {
                self.respond(stream, &responding, out, |config, head| form.answer(reply, config, head));
            }
            Reads::Entry(owed) => {
                if let Some(whole) = self.http_calls.add(stream, &owed.answer(&reply)) {
                    self.http_answer(stream, &responding, Answer::Json(whole), out);
                }
            }
            Reads::Nothing => {}
        }
    }

    pub(super) fn http_refuse(&mut self, stream: u32, owed: Owed, status: Status, out: &mut Outbox) {
        let Owed { form, responding } = owed;
        match form {
            Reads::Response(form) => {
                self.respond(stream, &responding, out, |config, head| form.refuse(status, config, head));
            }
            form => self.http_reply(stream, Owed { form, responding }, Reply::failure(status), out),
        }
    }

    fn http_answer(
        &mut self,
        stream: u32,
        responding: &Responding,
        answer: Answer,
        out: &mut Outbox,
    ) -> Found {
        self.respond(stream, responding, out, |config, head| answer.write(config, head));
        Found::Nothing
    }

    fn http_refusal(
        &mut self,
        stream: u32,
        config: &Arc<ServerConfig>,
        refusal: Refusal,
        out: &mut Outbox,
    ) -> Found {
        let responding = Responding { config: config.clone(), head_only: false, origin: None };
        self.http_answer(stream, &responding, Answer::Text(refusal.status, refusal.reason), out)
    }

    /// Sends the response whose head `write` writes and whose body it returns.
    fn respond(
        &mut self,
        stream: u32,
        responding: &Responding,
        out: &mut Outbox,
        write: impl FnOnce(&ServerConfig, &mut Block) -> Bytes,
    ) {
        let mut head = Block(Vec::with_capacity(128));
        let body = write(&responding.config, &mut head);
        if let Some(origin) = &responding.origin {
            grpc_web::expose(origin, |name, value| head.field(name, value));
        }
        let bare = responding.head_only || body.is_empty();
        self.http.headers(stream, &head.0, bare, out);
        if !bare {
            self.http.data(stream, &[], body, true, out);
        }
    }
}

fn found(stream: u32, call: Call<'static>, form: Reads, responding: Responding) -> Found {
    let http = Some(Box::new(Owed { form, responding }));
    Found::Http(Box::new((call, Ticket { stream, http })))
}

/// What the answer to a call depends on that could not be read.
fn as_fields(request: &Request) -> Fields {
    let content_type = request.content_type.iter().map(|value| (&b"content-type"[..], &value[..]));
    let origin = request.metadata.all("origin").map(|value| (&b"origin"[..], &value[..]));
    content_type.chain(origin).collect()
}

/// A header block that depends on no table.
struct Block(Vec<u8>);

impl Block {
    fn of(status: &str) -> Self {
        let mut block = Vec::new();
        encode_stateless([(&b":status"[..], status.as_bytes())], &mut block);
        Self(block)
    }
}

impl WriteHead for Block {
    fn begin(&mut self, status: u16, length: Option<usize>) {
        encode_stateless([(&b":status"[..], status.to_string().as_bytes())], &mut self.0);
        if let Some(length) = length {
            self.field("content-length", length.to_string().as_bytes());
        }
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        let name = name.to_ascii_lowercase();
        stateless_field(name.as_bytes(), value.trim_ascii(), Indexing::Unlikely, &mut self.0);
    }
}

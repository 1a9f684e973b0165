//! Requests of HTTP/2 that are none of gRPC: they are mapped to calls as those of HTTP/1 are.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::append::append;
use polyrpc_core::session::{Event, Missing, RequestHead, Verdict};
use polyrpc_core::{Call, Carrier, Credential, Outbox, Reply, Status};

use super::clock::Clock;
use super::passing::{Passing, Pieces};
use super::{Found, Overdue};
use crate::grpc::request::Unfit;
use crate::http::cors::expose;
use crate::http::h1::frame::Refusal;
use crate::http::h2::hpack::{Fields, Indexing, encode_stateless, stateless_field};
use crate::http::head::WriteHead;
use crate::http::mapping::answer::{self, Answer, Form};
use crate::http::mapping::asked::{self, Asked, Entries, Names, Peeked};
use crate::http::mapping::refused;
use crate::http::mapping::request::{Method, Request};
use crate::http::{ServerConfig, h2};
use crate::http_server::h2::{Server, Ticket};
use crate::http_server::request::H1Request;
use crate::json_rpc;

/// What requests have left that were handed out.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) names: Names,
    /// Batches that are not answered yet, by their streams.
    batches: Vec<(u32, json_rpc::Batch)>,
    /// Bytes of their responses.
    held: usize,
    /// What is left of the batch that is being handed out.
    entries: Option<Left>,
    /// Requests that somebody else answers, by their streams.
    pub(super) passing: BTreeMap<u32, Passing>,
}

/// The calls of a batch that were not handed out yet.
#[derive(Debug)]
struct Left {
    entries: Entries,
    responding: Responding,
    /// The credential of its request was accepted.
    authenticated: bool,
}

impl Calls {
    /// Bytes of responses that wait for others of their batch.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// The same, counted anew.
    pub(super) fn audited(&self) -> usize {
        self.batches.iter().map(|(_, batch)| batch.len()).sum()
    }

    /// Nobody waits for this stream any more.
    pub(super) fn forget(&mut self, stream: u32) {
        self.passing.remove(&stream);
        self.batches.retain(|(known, _)| *known != stream);
        self.held = self.batches.iter().map(|(_, batch)| batch.len()).sum();
    }

    /// Adds a response to its batch; all of them with the last.
    fn add(&mut self, stream: u32, response: &[u8]) -> Option<Vec<u8>> {
        let at = self.batches.iter().position(|(known, _)| *known == stream)?;
        let (_, batch) = self.batches.get_mut(at)?;
        let before = batch.len();
        batch.add(response);
        self.held += batch.len() - before;
        let whole = batch.finish()?;
        self.batches.swap_remove(at);
        self.held = self.batches.iter().map(|(_, batch)| batch.len()).sum();
        Some(whole)
    }
}

/// A request that is not done with.
#[derive(Debug)]
pub(in crate::http_server::h2) enum Incoming {
    /// Its body is not here yet.
    Body(Body),
    /// It came by HTTP/1 and asked for HTTP/2.
    Whole(H1Request, Bytes),
    /// Somebody else answers it, and takes its body as it comes.
    Pieces(Pieces),
}

/// A request whose body is not here yet, or was not judged yet.
#[derive(Debug)]
pub(in crate::http_server::h2) struct Body {
    request: Request,
    /// What has come of the body. It grows with that, whatever length was announced.
    bytes: Vec<u8>,
    /// Its head was judged: the body is wanted. Until then the peer may send no more than its first window.
    accepted: bool,
    ended: bool,
    clock: Clock,
}

/// What is to be done when a piece of a body has come.
enum Next {
    /// It exceeds the limit.
    TooLarge,
    /// Nothing, until it was judged.
    Judge,
    /// More must come.
    Wait,
    /// All of it is here.
    Whole,
}

impl Body {
    fn new(request: Request) -> Self {
        let clock = Clock::default();
        Self { request, bytes: Vec::new(), accepted: false, ended: false, clock }
    }

    /// Takes a piece.
    fn push(&mut self, piece: &[u8], end: bool, limit: usize) -> Next {
        if piece.len() > limit.saturating_sub(self.bytes.len()) {
            return Next::TooLarge;
        }
        append(&mut self.bytes, piece);
        self.clock.receive(piece.len());
        self.ended |= end;
        match (self.accepted, self.ended) {
            (false, _) => Next::Judge,
            (true, false) => Next::Wait,
            (true, true) => Next::Whole,
        }
    }
}

impl Incoming {
    /// Bytes of it that were not given out.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Body(body) => body.bytes.len(),
            Self::Whole(_, body) => body.len(),
            Self::Pieces(pieces) => pieces.held(),
        }
    }

    /// Whether more of it must come. Until it was judged, nothing must of a request that waits to be told to go on.
    pub(super) fn is_incomplete(&self) -> bool {
        matches!(self, Self::Body(body) if !body.ended && (body.accepted || !body.request.expects))
    }

    /// Whether somebody judges its head.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self, Self::Body(body) if !body.accepted)
    }

    pub(super) fn clock(&mut self) -> Option<&mut Clock> {
        match self {
            Self::Body(body) => Some(&mut body.clock),
            Self::Whole(..) | Self::Pieces(_) => None,
        }
    }
}

/// The head of a request, whose names stand in [`Calls`].
pub(super) struct Head {
    stream: u32,
    named: bool,
    credential: Credential,
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
            Reads::Exchange => answer::unknown(call, missing),
            Reads::Entry(_) | Reads::Nothing => answer::unknown_to_rpcx(call, missing),
        }
    }

    /// How its answer carries metadata.
    pub(super) fn carrier(&self) -> Carrier {
        match &self.form {
            Reads::Response(form) => form.carrier(),
            Reads::Entry(_) | Reads::Exchange | Reads::Nothing => Carrier::Any,
        }
    }

    pub(super) fn responding(&self) -> &Responding {
        &self.responding
    }

    /// Whether somebody else answers.
    pub(super) fn is_exchange(&self) -> bool {
        matches!(self.form, Reads::Exchange)
    }

    pub(super) fn of_exchange(responding: Responding) -> Self {
        Self { form: Reads::Exchange, responding }
    }
}

/// Who reads the answer to a call, and how.
#[derive(Debug)]
enum Reads {
    Response(Form),
    /// As one of several that leave together.
    Entry(json_rpc::Owed),
    /// As somebody else answers.
    Exchange,
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

impl Responding {
    pub(super) fn to(request: &Request, config: &Arc<ServerConfig>) -> Self {
        let origin = config.cors.origin(&request.metadata);
        Self { config: config.clone(), head_only: request.method == Method::Head, origin }
    }

    /// Whether a page may read the response is not said here.
    pub(super) fn without_origin(self) -> Self {
        Self { origin: None, ..self }
    }
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
            Ok(request) if end && request.is_plain() && !asked::wants_credential(config, &request) => {
                self.http_whole(stream, config, request, body, false, out)
            }
            // What is compressed is judged before it is decompressed, as some requests are here.
            Ok(request) => self.http_head(stream, config, request, body, end, out),
        }
    }

    /// The head of a request has come whose body is not here: somebody must judge whether that is wanted.
    fn http_head(
        &mut self,
        stream: u32,
        config: &Arc<ServerConfig>,
        request: Request,
        body: Bytes,
        end: bool,
        out: &mut Outbox,
    ) -> Found {
        let Peeked { named, credential, answer } = asked::peek(config, &request, &mut self.http_calls.names);
        if let Some(answer) = answer {
            let responding = Responding::to(&request, config);
            return self.http_answer(stream, &responding, answer, out);
        }
        let mut announced = Body::new(request);
        announced.push(&body, end, config.limits.message);
        let incoming = Incoming::Body(announced);
        self.open.insert(stream, super::Incoming::Http(Box::new(incoming)));
        Found::Head(Box::new(Head { stream, named, credential }))
    }

    /// A piece of a request's body.
    pub(super) fn http_piece(&mut self, stream: u32, bytes: &Bytes, end: bool, out: &mut Outbox) -> Found {
        if self.add_piece(stream, bytes, end) {
            return Found::Nothing;
        }
        let Some(config) = self.config.gateway.clone() else { return Found::Nothing };
        let limit = config.limits.message;
        let next = self.http_change(stream, |body| body.push(bytes, end, limit));
        match next.unwrap_or(Next::Judge) {
            Next::Judge => Found::Nothing,
            Next::Wait => {
                self.http.consumed(stream, bytes.len(), out);
                Found::Nothing
            }
            Next::Whole => {
                self.http.consumed(stream, bytes.len(), out);
                let Some(Incoming::Body(Body { request, bytes, .. })) = self.http_remove(stream) else {
                    return Found::Nothing;
                };
                self.http_whole(stream, &config, request, bytes.into(), true, out)
            }
            Next::TooLarge => {
                let is_announced = self.http_remove(stream).is_some_and(|incoming| incoming.is_announced());
                self.http_refusal(stream, &config, Refusal::too_large(), out);
                self.http_throw_away(stream, out);
                if is_announced { Found::Cancelled(super::id(stream)) } else { Found::Nothing }
            }
        }
    }

    /// Changes a request's body, if it is not whole.
    fn http_change<R>(&mut self, stream: u32, change: impl FnOnce(&mut Body) -> R) -> Option<R> {
        let changed = self.open.change(stream, |incoming| match incoming {
            super::Incoming::Http(incoming) => match &mut **incoming {
                Incoming::Body(body) => Some(change(body)),
                Incoming::Whole(..) | Incoming::Pieces(_) => None,
            },
            super::Incoming::Messages(_) => None,
        });
        changed.flatten()
    }

    fn http_remove(&mut self, stream: u32) -> Option<Incoming> {
        match self.open.remove(stream)? {
            super::Incoming::Http(incoming) => Some(*incoming),
            super::Incoming::Messages(_) => None,
        }
    }

    /// The request was answered before its end: what has come of it is thrown away, and so is the rest.
    pub(super) fn http_throw_away(&mut self, stream: u32, out: &mut Outbox) {
        self.http.consumed(stream, usize::MAX, out);
        self.http.stop_if_half_full(stream, out);
    }

    /// The head of a request was judged.
    pub(super) fn http_judge(&mut self, stream: u32, verdict: Verdict, out: &mut Outbox) {
        let Some(config) = self.config.gateway.clone() else { return };
        let is_announced = self.http_change(stream, |body| !body.accepted);
        if is_announced != Some(true) {
            // It is over meanwhile.
            return;
        }
        if verdict == Verdict::Accepted {
            return self.http_accept(stream, out);
        }
        let Some(Incoming::Body(Body { request, .. })) = self.http_remove(stream) else { return };
        if let Some(answer) = asked::refused(&config, &request, verdict) {
            let responding = Responding::to(&request, &config);
            self.http_answer(stream, &responding, answer, out);
        }
        self.http_throw_away(stream, out);
    }

    /// The body of a request is wanted.
    fn http_accept(&mut self, stream: u32, out: &mut Outbox) {
        let accepted = self.http_change(stream, |body| {
            body.accepted = true;
            body.request.accepted = true;
            (body.bytes.len(), body.request.expects, body.ended)
        });
        let Some((held, expects, ended)) = accepted else { return };
        if ended {
            // It becomes a call with the next event.
            self.http.give_out(h2::Event::Data { stream, bytes: Bytes::new(), end: true });
        } else if expects && held == 0 {
            self.http.headers(stream, &Block::of("100").0, false, out);
        }
        self.http.consumed(stream, held, out);
    }

    /// Answers a request that is not waited for any longer.
    #[cold]
    pub(super) fn http_give_up(
        &mut self,
        stream: u32,
        incoming: Incoming,
        overdue: Overdue,
        out: &mut Outbox,
    ) {
        let Some(config) = self.config.gateway.clone() else { return };
        let Incoming::Body(Body { request, .. }) = incoming else { return };
        let responding = Responding::to(&request, &config);
        match overdue {
            Overdue::Late(status) => {
                self.respond(stream, &responding, out, |config, head| answer::late(&status, config, head));
            }
            Overdue::Leaving => {
                let verdict = Verdict::Refused(overdue.into_status());
                let answer = asked::refused(&config, &request, verdict);
                answer.into_iter().for_each(|answer| {
                    self.http_answer(stream, &responding, answer, out);
                });
            }
        }
    }

    /// The head of the request that was found last, with its names.
    pub(super) fn http_announced(&self, head: Head) -> Event<'_, Ticket> {
        let target = head.named.then(|| self.http_calls.names.parts());
        Event::Head(RequestHead { target, credential: head.credential }, super::id(head.stream))
    }

    /// A request is whole: answers it here, or makes a call of it.
    fn http_whole(
        &mut self,
        stream: u32,
        config: &Arc<ServerConfig>,
        request: Request,
        body: Bytes,
        authenticated: bool,
        out: &mut Outbox,
    ) -> Found {
        let responding = Responding::to(&request, config);
        match Asked::read(config, request, body, &mut self.http_calls.names) {
            Asked::Answer(answer) => self.http_answer(stream, &responding, answer, out),
            Asked::Call(call, form) => {
                found(stream, Call { authenticated, ..call }, Reads::Response(form), responding)
            }
            Asked::Notify(call, answer) => {
                self.http_answer(stream, &responding, answer, out);
                found(stream, Call { authenticated, ..call }, Reads::Nothing, responding)
            }
            Asked::Batch(entries, mut batch) => {
                match batch.finish() {
                    Some(response) => {
                        self.http_answer(stream, &responding, Answer::Json(response), out);
                    }
                    None => {
                        self.http_calls.held += batch.len();
                        self.http_calls.batches.push((stream, batch));
                    }
                }
                self.http_calls.entries = Some(Left { entries, responding, authenticated });
                self.taking = Some(stream);
                Found::Nothing
            }
        }
    }

    /// Hands out the next call of a batch, if there is one.
    pub(super) fn http_entry(&mut self, stream: u32) -> Found {
        let Calls { names, entries, .. } = &mut self.http_calls;
        if let Some(Left { entries, responding, authenticated }) = entries
            && let Some((call, owed)) = entries.next(names)
        {
            let call = Call { authenticated: *authenticated, ..call };
            return found(stream, call, owed.map_or(Reads::Nothing, Reads::Entry), responding.clone());
        }
        *entries = None;
        self.taking = None;
        Found::Nothing
    }

    /// Takes up the request that asked for HTTP/2.
    pub(super) fn http_upgraded(&mut self, stream: u32, out: &mut Outbox) -> Found {
        if let Some(found) = self.next_piece(stream) {
            return found;
        }
        self.taking = None;
        let Some(Incoming::Whole(mut request, body)) = self.http_remove(stream) else {
            return Found::Nothing;
        };
        self.http.greet(out);
        match (request.grpc.take().map(|grpc| *grpc), self.config.gateway.clone()) {
            (Some(Ok(call)), _) => self.whole(stream, Arc::new(call), body),
            (Some(Err(unfit)), _) => self.turn_away(stream, &as_fields(&request.inner), unfit, out),
            (None, Some(gateway)) => self.http_whole(stream, &gateway, request.inner, body, false, out),
            (None, None) => self.turn_away(stream, &as_fields(&request.inner), Unfit::ContentType, out),
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
            Reads::Exchange => self.reply_exchange(stream, &responding, reply, out),
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

    pub(super) fn http_answer(
        &mut self,
        stream: u32,
        responding: &Responding,
        answer: Answer,
        out: &mut Outbox,
    ) -> Found {
        let answer = match answer {
            // The page may not call: what it would have been told is not for it.
            Answer::Options(Some(_)) if responding.origin.is_none() => Answer::Options(None),
            answer => answer,
        };
        if let Some(cause) = refused::cause(&answer) {
            self.untold.note(cause);
        }
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
        self.http_answer(stream, &responding, Answer::Failed(refusal.status, refusal.reason), out)
    }

    /// Sends the response whose head `write` writes and whose body it returns.
    pub(super) fn respond(
        &mut self,
        stream: u32,
        responding: &Responding,
        out: &mut Outbox,
        write: impl FnOnce(&ServerConfig, &mut Block) -> Bytes,
    ) {
        let mut head = Block(Vec::with_capacity(128));
        let body = write(&responding.config, &mut head);
        if let Some(origin) = &responding.origin {
            expose(origin, |name, value| head.field(name, value));
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
pub(super) struct Block(pub(super) Vec<u8>);

impl Block {
    pub(super) fn of(status: &str) -> Self {
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

//! HTTP/2 requests for the HTTP fallback: their bodies are streamed in both directions, within the windows.

use bytes::Bytes;
use polyrpc_core::session::ServerEvent;
use polyrpc_core::{Call, Compression, Credential, Format, Head, Message, Metadata, Outbox, Reply, Status};

use super::fallback_request::{ActiveExchange, Pieces};
use super::http::{Block, Calls, Incoming, PendingResponse, ResponseContext};
use super::{CallEvent, id};
use crate::http::h2::ErrorCode;
use crate::http::h2::hpack::{Fields, Indexing, stateless_field};
use crate::http::head::WriteHead;
use crate::http::mapping::content_type::is_grpc;
use crate::http::mapping::exchange::{self, Response};
use crate::http::mapping::request::{Method, Request};
use crate::http::mapping::{browser, brpc, request_kind};
use crate::http_server::h2::{Server, Ticket};
use crate::http_server::request::from_h2;

impl Calls {
    /// Whether the HTTP fallback answers this stream.
    pub(super) fn is_exchange(&self, stream: u32) -> bool {
        !self.passing.is_empty() && self.passing.contains_key(&stream)
    }
}

impl Server {
    /// Emits a request for the HTTP fallback, if it is one.
    #[cold]
    pub(super) fn pass_on(
        &mut self,
        stream: u32,
        fields: &Fields,
        body: &Bytes,
        end: bool,
        out: &mut Outbox,
    ) -> Option<CallEvent> {
        let config = self.config.gateway.as_ref().filter(|config| config.own.is_some())?.clone();
        if fields.get(b"content-type").is_some_and(is_grpc) {
            return None;
        }
        // Malformed requests are rejected at the same point as malformed calls.
        let request = from_h2(fields, usize::MAX).ok()?;
        if !request_kind::is_for_others(&config, &request) {
            return None;
        }
        let responding = ResponseContext::new(&request, &config).without_origin();
        if let Some(answer) = browser::wrong_host(&config, &request) {
            return Some(self.http_answer(stream, &responding, answer, out));
        }
        let head_only = request.method == Method::Head;
        self.http_calls.passing.insert(stream, ActiveExchange { head_only, begun: false, bare: false });
        self.http_calls.names.set("", request.path.as_str());
        let pieces = Pieces { piece: body.clone(), ended: end };
        let incoming = super::Incoming::Http(Box::new(Incoming::Pieces(pieces)));
        self.open.insert(stream, incoming);
        self.taking = Some(stream);
        let metadata = metadata_of(fields, &request);
        let call = Call {
            head: Head { format: Format::Raw, metadata, plain_http: true, ..Head::default() },
            credential: Credential::Call(request.authorization),
            ..Call::new("", "", Format::Raw, Bytes::new())
        };
        let ticket = Ticket::of_http(stream, PendingResponse::from_exchange(responding));
        Some(CallEvent::Exchange(Box::new((call, ticket))))
    }

    /// Returns the event of the request found last, with its names.
    pub(super) fn exchange(&self, (call, ticket): (Call<'static>, Ticket)) -> ServerEvent<'_, Ticket> {
        let (service, method) = self.http_calls.names.parts();
        let stream = id(ticket.stream);
        ServerEvent::Open(Call { service, method, ..call }, ticket, stream)
    }

    /// Adds a piece of a body. Returns `false` if the request is not for the HTTP fallback.
    pub(super) fn add_piece(&mut self, stream: u32, bytes: &Bytes, end: bool) -> bool {
        let added = self.open.change(stream, |incoming| match incoming {
            super::Incoming::Http(incoming) => match &mut **incoming {
                Incoming::Pieces(pieces) => {
                    pieces.piece = bytes.clone();
                    pieces.ended |= end;
                    true
                }
                Incoming::Body(_) | Incoming::Whole(..) => false,
            },
            super::Incoming::Messages(_) => false,
        });
        if added == Some(true) {
            self.taking = Some(stream);
        }
        added == Some(true)
    }

    /// Returns the next piece of a body; `None` if the request is not for the HTTP fallback.
    pub(super) fn next_piece(&mut self, stream: u32) -> Option<CallEvent> {
        let taken = self.open.change(stream, |incoming| match incoming {
            super::Incoming::Http(incoming) => match &mut **incoming {
                Incoming::Pieces(pieces) => Some((std::mem::take(&mut pieces.piece), pieces.ended)),
                Incoming::Body(_) | Incoming::Whole(..) => None,
            },
            super::Incoming::Messages(_) => None,
        });
        Some(match taken?? {
            (body, _) if !body.is_empty() => {
                CallEvent::Message(id(stream), Message { body, compression: Compression::None })
            }
            (_, true) => {
                self.taking = None;
                self.open.remove(stream);
                CallEvent::End(id(stream))
            }
            (_, false) => {
                self.taking = None;
                CallEvent::Nothing
            }
        })
    }

    /// Sends the head of a response if that has not happened yet.
    #[cold]
    pub(super) fn pass_head(&mut self, stream: u32, fields: &Metadata, out: &mut Outbox) {
        let Some(passing) = self.http_calls.passing.get_mut(&stream).filter(|passing| !passing.begun) else {
            return;
        };
        let response = Response::read(fields);
        (passing.begun, passing.bare) = (true, response.is_bare(passing.head_only));
        let bare = passing.bare;
        let mut block = Block(Vec::with_capacity(128));
        block.begin(response.status, None);
        for (name, value) in response.fields() {
            block.field(name, value);
        }
        self.http.headers(stream, &block.0, bare, out);
    }

    /// Sends a piece of a response's body.
    #[cold]
    pub(super) fn send_piece(&mut self, stream: u32, piece: Bytes, out: &mut Outbox) {
        let sends =
            self.http_calls.passing.get(&stream).is_some_and(|passing| passing.begun && !passing.bare);
        if sends && !piece.is_empty() {
            self.http.data(stream, &[], piece, false, out);
        }
    }

    /// Ends a response. An incomplete one is reset.
    #[cold]
    pub(super) fn finish_exchange(
        &mut self,
        stream: u32,
        response_form: &PendingResponse,
        result: Result<(), Status>,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        let Some(ActiveExchange { begun, bare, .. }) = self.http_calls.passing.remove(&stream) else {
            return;
        };
        match result {
            Err(status) if !begun => self.fail_exchange(stream, response_form.responding(), &status, out),
            Err(_) => self.http.reset(stream, ErrorCode::INTERNAL_ERROR, out),
            Ok(()) if !begun => self.http.headers(stream, &Block::with_status("200").0, true, out),
            Ok(()) if bare => {}
            Ok(()) if trailers.is_empty() => self.http.data(stream, &[], Bytes::new(), true, out),
            Ok(()) => {
                let mut block = Vec::new();
                for (name, value) in exchange::end_to_end_fields(trailers) {
                    let name = name.to_ascii_lowercase();
                    stateless_field(name.as_bytes(), value, Indexing::Unlikely, &mut block);
                }
                self.http.trailers(stream, &block, out);
            }
        }
    }

    /// Answers a request that the HTTP fallback did not answer.
    #[cold]
    pub(super) fn reply_exchange(
        &mut self,
        stream: u32,
        responding: &ResponseContext,
        reply: Reply,
        out: &mut Outbox,
    ) {
        let unread = self.open.remove(stream);
        if self.http_calls.passing.remove(&stream).is_none() {
            return;
        }
        match reply.result {
            Ok(_) => self.http.headers(stream, &Block::with_status("200").0, true, out),
            Err(status) => self.fail_exchange(stream, responding, &status, out),
        }
        if unread.is_some() {
            self.http_discard(stream, out);
        }
    }

    #[cold]
    fn fail_exchange(
        &mut self,
        stream: u32,
        responding: &ResponseContext,
        status: &Status,
        out: &mut Outbox,
    ) {
        self.respond(stream, responding, out, |config, head| {
            brpc::failure(status, &Metadata::new(), config, head)
        });
    }
}

/// Returns all fields of a head.
fn metadata_of(fields: &Fields, request: &Request) -> Metadata {
    let list = fields
        .iter()
        .filter(|(name, _)| !name.starts_with(b":"))
        .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), Bytes::copy_from_slice(value)));
    exchange::request(request.method.as_str(), request.target(), request.host.clone(), list.collect())
}

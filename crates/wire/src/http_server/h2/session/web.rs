//! Responses to calls in web dialects of gRPC, on an HTTP/2 stream.

use bytes::Bytes;
use polyrpc_core::session::server::Streaming as _;
use polyrpc_core::{Compression, Format, Head, Metadata, Outbox, Status};

use super::http::Block;
use super::{ResponseState, id};
use crate::grpc::dialect::Dialect;
use crate::grpc::framing::{ResponseBody, WholeResponse};
use crate::grpc::request::{Request, kind};
use crate::grpc_web;
use crate::http::Cors;
use crate::http::cors::{Preflight, expose};
use crate::http::h2::hpack::{Fields, Indexing, encode_stateless, stateless_field};
use crate::http::head::WriteHead;
use crate::http_server::h2::Server;

/// State of the response to a call in a web dialect.
#[derive(Debug)]
pub(super) struct WebResponse {
    dialect: Dialect,
    /// A page of this origin may read the response.
    origin: Option<Bytes>,
    /// The buffered response, if it is sent as a whole; `None` once it has been sent.
    whole: Option<WholeResponse>,
}

impl WebResponse {
    pub(super) fn new(request: &Request, cors: &Cors) -> Self {
        let origin = cors.origin(&request.metadata);
        Self { dialect: request.dialect, origin, whole: Some(WholeResponse::default()) }
    }

    /// Returns the form of the response to a malformed head; `None` if it is not one of gRPC-Web.
    pub(super) fn from_fields(fields: &Fields, cors: &Cors) -> Option<Self> {
        let (dialect, _) = kind(fields.get(b"content-type")?)?;
        let origin = || cors.origin(&about_origin(fields));
        (dialect != Dialect::Native).then(|| Self {
            dialect,
            origin: origin(),
            whole: Some(WholeResponse::default()),
        })
    }

    /// Stores the head of a response that is sent as a whole; returns `false` if this one is not.
    pub(super) fn keep(&mut self, compression: Compression, metadata: &Metadata) -> bool {
        let is_whole = self.dialect.is_whole(true, None);
        if is_whole {
            self.whole.iter_mut().for_each(|whole| whole.start(compression, metadata.clone()));
        }
        is_whole
    }

    /// Returns the head of the response.
    pub(super) fn head(&self, format: Format, compression: Compression, metadata: &Metadata) -> Vec<u8> {
        let mut block = status("200");
        grpc_web::head(self.dialect, format, compression, metadata, |name, value| {
            stateless_field(name, value, Indexing::Unlikely, &mut block);
        });
        if let Some(origin) = &self.origin {
            expose(origin, |name, value| field(name, value, &mut block));
        }
        block
    }
}

impl Server {
    /// Returns the web dialect of a stream's response, if it uses one.
    pub(super) fn web_dialect(&mut self, stream: u32) -> Option<Dialect> {
        self.http.data_of(stream)?.web.as_ref().map(|web| web.dialect)
    }

    pub(super) fn web_message(
        &mut self,
        stream: u32,
        dialect: Dialect,
        compression: Compression,
        message: Bytes,
        out: &mut Outbox,
    ) {
        if dialect.response_body() == ResponseBody::Message {
            return self.keep_message(stream, message, out);
        }
        grpc_web::message(dialect, compression, message, |prefix, body| {
            self.http.data(stream, prefix, body, false, out);
        });
    }

    pub(super) fn web_finish(
        &mut self,
        stream: u32,
        failure: Option<&Status>,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        let answering = self.http.data_of(stream);
        let begun = answering.is_some_and(|answering| answering.begun.is_some());
        let web = self.http.data_of(stream).and_then(|answering| answering.web.as_deref());
        if web.is_some_and(|web| web.dialect.is_whole(begun, failure)) {
            return self.finish_unary_response(stream, failure, trailers, out);
        }
        self.start_response(id(stream), Head::default(), out);
        let Some(dialect) = self.web_dialect(stream) else { return };
        grpc_web::trailers(dialect, failure, trailers, |prefix, body| {
            self.http.data(stream, prefix, body, true, out);
        });
    }

    /// Stores the metadata of a failure that is sent as a whole, in a response that has not begun.
    #[cold]
    pub(super) fn keep_metadata(&mut self, stream: u32, metadata: Metadata) {
        let web = self.http.data_of(stream).and_then(|answering| answering.web.as_mut());
        if let Some(whole) = web.and_then(|web| web.whole.as_mut()) {
            whole.start(Compression::None, metadata);
        }
    }

    /// Stores a message of a response that is sent as a whole. After the second, further ones are not needed.
    fn keep_message(&mut self, stream: u32, message: Bytes, out: &mut Outbox) {
        let Some(web) = self.http.data_of(stream).and_then(|answering| answering.web.as_mut()) else {
            return;
        };
        let Some(whole) = &mut web.whole else { return };
        whole.add(message);
        if whole.has_surplus {
            self.finish_unary_response(stream, None, &Metadata::new(), out);
            self.cancel(stream);
        }
    }

    fn finish_unary_response(
        &mut self,
        stream: u32,
        failure: Option<&Status>,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        let Some(ResponseState { format, web: Some(web), .. }) = self.http.data_of(stream) else { return };
        let (format, origin) = (*format, web.origin.clone());
        let Some((whole, framing)) = web.whole.take().zip(web.dialect.framing()) else { return };
        let mut head = Block(Vec::with_capacity(128));
        let body = framing.whole(whole, format, failure, trailers, &mut head);
        if let Some(origin) = &origin {
            expose(origin, |name, value| head.field(name, value));
        }
        self.http.headers(stream, &head.0, body.is_empty(), out);
        if !body.is_empty() {
            self.http.data(stream, &[], body, true, out);
        }
    }

    /// Answers a CORS preflight; returns `false` if the request is not one, or the page may not call.
    pub(super) fn answer_web_preflight(&mut self, stream: u32, fields: &Fields, out: &mut Outbox) -> bool {
        if fields.get(b":method") != Some(b"OPTIONS") {
            return false;
        }
        let fields = about_origin(fields);
        let Some((origin, preflight)) = self.config.cors.origin(&fields).zip(Preflight::read(&fields)) else {
            return false;
        };
        let mut block = status("204");
        preflight.allow(|name, value| field(name, value, &mut block));
        expose(&origin, |name, value| field(name, value, &mut block));
        self.http.headers(stream, &block, true, out);
        true
    }
}

/// Returns the fields that a browser sends about the page.
fn about_origin(fields: &Fields) -> Metadata {
    ["origin", "access-control-request-method", "access-control-request-headers"]
        .into_iter()
        .filter_map(|name| Some((name, Bytes::copy_from_slice(fields.get(name.as_bytes())?))))
        .collect()
}

fn status(code: &str) -> Vec<u8> {
    let mut block = Vec::with_capacity(128);
    encode_stateless([(&b":status"[..], code.as_bytes())], &mut block);
    block
}

fn field(name: &str, value: &[u8], block: &mut Vec<u8>) {
    stateless_field(name.as_bytes(), value, Indexing::Unlikely, block);
}

//! The response to a call, for every version of HTTP.

use bytes::Bytes;
use polyrpc_core::session::NotFound;
use polyrpc_core::{Call, Compression, Format, Metadata, Status};

use super::kind::{EVENT_STREAM, Kind, NDJSON, name};
use super::response::Response;
use super::{frame, status};
use crate::grpc::framing::{Framing, ResponseBody, ResponseDecoder, WholeResponse};
use crate::grpc::{coding, metadata};
use crate::http::head::WriteHead;

impl Framing for Kind {
    fn content_type(&self, format: Format) -> Vec<u8> {
        match self {
            Self::Unary => [b"application/", name(format)].concat(),
            Self::Stream => [b"application/connect+", name(format)].concat(),
            Self::Lines => NDJSON.to_vec(),
            Self::Events => EVENT_STREAM.to_vec(),
        }
    }

    fn has_bare_request(&self) -> bool {
        *self != Self::Stream
    }

    fn response_body(&self) -> ResponseBody {
        match self {
            Self::Unary => ResponseBody::Message,
            Self::Stream => ResponseBody::Prefixed,
            Self::Lines | Self::Events => ResponseBody::Text,
        }
    }

    fn head(
        &self,
        format: Format,
        compression: Compression,
        metadata: &Metadata,
        write: &mut dyn FnMut(&[u8], &[u8]),
    ) {
        write(b"content-type", &self.content_type(format));
        if *self == Self::Events {
            write(b"cache-control", b"no-cache");
        }
        if let Some(name) = coding::name(compression).filter(|_| compression != Compression::None) {
            write(b"connect-content-encoding", name);
        }
        fields(metadata, write);
    }

    fn message(&self, compression: Compression, message: Bytes, send: &mut dyn FnMut(&[u8], Bytes)) {
        match self {
            Self::Unary | Self::Stream => {
                let (compressed, body) = coding::compress_if_smaller(compression, message);
                send(&crate::grpc::frame::prefix(compressed, body.len()), body);
            }
            Self::Lines => send(b"", [&in_one_line(message)[..], b"\n"].concat().into()),
            Self::Events => send(b"data: ", [&in_one_line(message)[..], b"\n\n"].concat().into()),
        }
    }

    fn end(&self, failure: Option<&Status>, trailers: &Metadata, send: &mut dyn FnMut(&[u8], Bytes)) {
        let text = frame::end(failure, trailers);
        match (self, failure) {
            (Self::Unary | Self::Stream, _) => send(&frame::end_prefix(text.len()), text.into()),
            (Self::Lines, None) => send(b"", Bytes::new()),
            (Self::Lines, Some(_)) => send(b"", [&text[..], b"\n"].concat().into()),
            // Without the `end` event, a browser would repeat the request when the response ends.
            (Self::Events, None) => send(b"event: end\ndata: ", [&text[..], b"\n\n"].concat().into()),
            (Self::Events, Some(_)) => send(b"event: error\ndata: ", [&text[..], b"\n\n"].concat().into()),
        }
    }

    /// A unary response: the head has the HTTP status and the trailers.
    fn whole(
        &self,
        response: WholeResponse,
        format: Format,
        failure: Option<&Status>,
        trailers: &Metadata,
        head: &mut dyn WriteHead,
    ) -> Bytes {
        let WholeResponse { compression, metadata, message, has_surplus } = response;
        let body = match (failure, message) {
            (None, Some(message)) if !has_surplus => write_success(format, compression, message, head),
            (None, _) => write_failure(&not_unary(), head),
            (Some(failure), _) => write_failure(failure, head),
        };
        let mut name = String::new();
        fields(&metadata, |key, value| head.field(&String::from_utf8_lossy(key), value));
        metadata::write(trailers, |key, value| {
            name.clear();
            name.push_str("trailer-");
            name.push_str(&String::from_utf8_lossy(key));
            head.field(&name, value);
        });
        body
    }

    fn not_found(&self, call: &Call<'_>, missing: NotFound) -> Status {
        status::not_found(call, missing)
    }

    fn decode_failure(&self) -> fn(Status) -> Status {
        std::convert::identity
    }

    fn response_decoder(&self, format: Format, limit: usize) -> Box<dyn ResponseDecoder> {
        Box::new(Response::new(*self, format, limit))
    }
}

/// Removes the line ends of a JSON message, where they are whitespace only.
fn in_one_line(message: Bytes) -> Bytes {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !message.iter().any(is_end) {
        return message;
    }
    message.iter().map(|byte| if is_end(byte) { b' ' } else { *byte }).collect()
}

fn write_success(
    format: Format,
    compression: Compression,
    message: Bytes,
    head: &mut dyn WriteHead,
) -> Bytes {
    let (compressed, body) = coding::compress_if_smaller(compression, message);
    head.begin(200, Some(body.len()));
    let content_type = Framing::content_type(&Kind::Unary, format);
    head.field("content-type", &content_type);
    if let Some(name) = coding::name(compression).filter(|_| compressed) {
        head.field("content-encoding", name);
        head.field("vary", b"accept-encoding");
    }
    body
}

#[cold]
fn write_failure(failure: &Status, head: &mut dyn WriteHead) -> Bytes {
    let body = status::write(failure).to_string();
    head.begin(status::http(failure), Some(body.len()));
    head.field("content-type", b"application/json");
    body.into()
}

#[cold]
fn not_unary() -> Status {
    Status::unimplemented("the method returns a stream: call it with application/connect+proto or +json")
}

/// Passes metadata to `write` as fields, except for names reserved by the protocol.
fn fields(metadata: &Metadata, mut write: impl FnMut(&[u8], &[u8])) {
    metadata::write(metadata, |name, value| {
        let is_reserved = name.starts_with(b"connect-") || name.starts_with(b"trailer-");
        if !is_reserved && name != b"accept-encoding" {
            write(name, value);
        }
    });
}

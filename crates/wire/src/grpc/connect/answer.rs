//! The response to a call, for every version of HTTP.

use bytes::Bytes;
use polyrpc_core::{Compression, Format, Metadata, Status};

use super::frame;
use super::status;
use crate::grpc::{coding, metadata};
use crate::http::connect_kind::Kind;
use crate::http::head::WriteHead;

/// Returns the fields of the head of a streamed response.
pub(crate) fn head(
    kind: Kind,
    format: Format,
    compression: Compression,
    metadata: &Metadata,
    mut write: impl FnMut(&[u8], &[u8]),
) {
    write(b"content-type", &kind.content_type(format));
    if kind == Kind::Events {
        write(b"cache-control", b"no-cache");
    }
    if let Some(name) = coding::name(compression).filter(|_| compression != Compression::None) {
        write(b"connect-content-encoding", name);
    }
    fields(metadata, write);
}

/// Passes a message of a streamed response to `send`: in one piece, behind its prefix.
pub(crate) fn message(kind: Kind, compression: Compression, message: Bytes, send: impl FnOnce(&[u8], Bytes)) {
    match kind {
        Kind::Unary | Kind::Stream => {
            let (compressed, body) = coding::compress_if_smaller(compression, message);
            send(&crate::grpc::frame::prefix(compressed, body.len()), body);
        }
        Kind::Lines => send(b"", [&in_one_line(message)[..], b"\n"].concat().into()),
        Kind::Events => send(b"data: ", [&in_one_line(message)[..], b"\n\n"].concat().into()),
    }
}

/// Passes what follows the last message of a streamed response to `send`.
pub(crate) fn end(
    kind: Kind,
    failure: Option<&Status>,
    trailers: &Metadata,
    send: impl FnOnce(&[u8], Bytes),
) {
    let text = frame::end(failure, trailers);
    match (kind, failure) {
        (Kind::Unary | Kind::Stream, _) => send(&frame::end_prefix(text.len()), text.into()),
        (Kind::Lines, None) => send(b"", Bytes::new()),
        (Kind::Lines, Some(_)) => send(b"", [&text[..], b"\n"].concat().into()),
        // Without the `end` event, a browser would repeat the request when the response ends.
        (Kind::Events, None) => send(b"event: end\ndata: ", [&text[..], b"\n\n"].concat().into()),
        (Kind::Events, Some(_)) => send(b"event: error\ndata: ", [&text[..], b"\n\n"].concat().into()),
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

/// A response that is sent as a whole: a unary one, with HTTP status and trailers in its head.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    compression: Compression,
    metadata: Metadata,
    message: Option<Bytes>,
    /// The method has sent more than one message.
    surplus: bool,
}

impl Whole {
    /// Stores the head.
    pub(crate) fn begin(&mut self, compression: Compression, metadata: Metadata) {
        (self.compression, self.metadata) = (compression, metadata);
    }

    /// Stores the message.
    pub(crate) fn message(&mut self, message: Bytes) {
        self.surplus |= self.message.replace(message).is_some();
    }

    /// Whether the method has sent more than one message; further ones are not needed.
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus
    }

    /// Writes the head of the response and returns its body.
    pub(crate) fn write(
        self,
        format: Format,
        failure: Option<&Status>,
        trailers: &Metadata,
        head: &mut impl WriteHead,
    ) -> Bytes {
        let Self { compression, metadata, message, surplus } = self;
        let body = match (failure, message) {
            (None, Some(message)) if !surplus => succeeded(format, compression, message, head),
            (None, _) => failed(&not_unary(), head),
            (Some(failure), _) => failed(failure, head),
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
}

fn succeeded(format: Format, compression: Compression, message: Bytes, head: &mut impl WriteHead) -> Bytes {
    let (compressed, body) = coding::compress_if_smaller(compression, message);
    head.begin(200, Some(body.len()));
    let content_type = Kind::Unary.content_type(format);
    head.field("content-type", &content_type);
    if let Some(name) = coding::name(compression).filter(|_| compressed) {
        head.field("content-encoding", name);
        head.field("vary", b"accept-encoding");
    }
    body
}

#[cold]
fn failed(failure: &Status, head: &mut impl WriteHead) -> Bytes {
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

//! The response to a gRPC-Web call, for every version of HTTP.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use polyrpc_core::{Compression, Format, Metadata, Status};

use crate::grpc::dialect::Dialect;
use crate::grpc::{coding, frame, metadata, status};

/// Returns the fields of a response's head.
pub(crate) fn head(
    dialect: Dialect,
    format: Format,
    compression: Compression,
    metadata: &Metadata,
    mut write: impl FnMut(&[u8], &[u8]),
) {
    if let Some(framing) = dialect.framing() {
        return framing.head(format, compression, metadata, &mut write);
    }
    write(b"content-type", &dialect.content_type(format));
    if let Some(name) = coding::name(compression).filter(|_| compression != Compression::None) {
        write(b"grpc-encoding", name);
    }
    metadata::write(metadata, write);
}

/// Passes a message to `send`, in one piece behind its prefix.
pub(crate) fn message(
    dialect: Dialect,
    compression: Compression,
    message: Bytes,
    mut send: impl FnMut(&[u8], Bytes),
) {
    if let Some(framing) = dialect.framing() {
        return framing.message(compression, message, &mut send);
    }
    let (compressed, body) = coding::compress_if_smaller(compression, message);
    send_frame(dialect, &frame::prefix(compressed, body.len()), body, send);
}

/// Passes the last frame, the result of the call.
pub(crate) fn trailers(
    dialect: Dialect,
    failure: Option<&Status>,
    metadata: &Metadata,
    mut send: impl FnMut(&[u8], Bytes),
) {
    if let Some(framing) = dialect.framing() {
        return framing.end(failure, metadata, &mut send);
    }
    let mut lines = Vec::with_capacity(64);
    status::write(failure, metadata, |name, value| {
        for part in [name, b":", value, b"\r\n"] {
            lines.extend_from_slice(part);
        }
    });
    let [_, length @ ..] = frame::prefix(false, lines.len());
    let [a, b, c, d] = length;
    send_frame(dialect, &[TRAILERS, a, b, c, d], lines.into(), send);
}

/// Flag of the last frame.
const TRAILERS: u8 = 0x80;

fn send_frame(dialect: Dialect, prefix: &[u8], body: Bytes, mut send: impl FnMut(&[u8], Bytes)) {
    match dialect {
        Dialect::Native | Dialect::Web | Dialect::Framed(_) => send(prefix, body),
        Dialect::WebText => send(&[], STANDARD.encode([prefix, &body].concat()).into()),
    }
}

//! Heads and bodies of responses without a message: text, HTML, JSON-RPC.

use bytes::Bytes;

use super::content_type;
use crate::http::head::WriteHead;

/// Writes the head of a plain text response, and returns its body.
pub(crate) fn plain(status: u16, text: &str, head: &mut impl WriteHead) -> Bytes {
    head.begin(status, Some(text.len()));
    head.field("Content-Type", b"text/plain");
    Bytes::copy_from_slice(text.as_bytes())
}

/// Writes the head of an HTML page, and returns its body.
pub(super) fn html(text: &str, head: &mut impl WriteHead) -> Bytes {
    head.begin(200, Some(text.len()));
    head.field("Content-Type", b"text/html; charset=utf-8");
    Bytes::copy_from_slice(text.as_bytes())
}

/// Writes the head of a JSON-RPC response, and returns its body.
pub(crate) fn json_rpc(body: Bytes, head: &mut impl WriteHead) -> Bytes {
    head.begin(200, Some(body.len()));
    if !body.is_empty() {
        head.field("Content-Type", content_type::JSON.as_bytes());
    }
    body
}

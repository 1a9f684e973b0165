//! Plain text responses.

use bytes::Bytes;

use super::content_type;
use crate::http::head::WriteHead;

/// Writes a plain text response.
pub(crate) fn plain(http: u16, text: &str, head: &mut impl WriteHead) -> Bytes {
    head.begin(http, Some(text.len()));
    head.field("Content-Type", b"text/plain");
    Bytes::copy_from_slice(text.as_bytes())
}

/// Writes an HTML page.
pub(super) fn html(text: &str, head: &mut impl WriteHead) -> Bytes {
    head.begin(200, Some(text.len()));
    head.field("Content-Type", b"text/html; charset=utf-8");
    Bytes::copy_from_slice(text.as_bytes())
}

/// Writes a JSON-RPC response.
pub(crate) fn json(body: Bytes, head: &mut impl WriteHead) -> Bytes {
    head.begin(200, Some(body.len()));
    if !body.is_empty() {
        head.field("Content-Type", content_type::JSON.as_bytes());
    }
    body
}

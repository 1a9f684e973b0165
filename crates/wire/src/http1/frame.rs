//! The bytes of HTTP/1.x: where a head ends, what its fields say of the body behind it, and how a head is
//! written.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use bytes::Bytes;
use polyrpc_core::{Carrier, Metadata, Violation};

use crate::h2::hpack::Fields;

pub(super) use polyrpc_core::carrier::is_token as is_field_name;
pub(super) use polyrpc_core::carrier::{is_field_byte, is_metadata};

use super::head::WriteHead;

/// Why a message cannot be read on: a server answers it with `status` and closes, a client gives up.
///
/// Whatever leaves the end of a message in doubt is refused, never repaired: a proxy before us may have
/// read it otherwise, and the rest of one request must not pass for another (RFC 9112 §11.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
}

impl Refusal {
    #[cold]
    pub(super) fn malformed(reason: &'static str) -> Self {
        Self { status: 400, reason }
    }

    #[cold]
    pub(crate) fn too_large() -> Self {
        Self { status: 413, reason: "the message is larger than this side accepts" }
    }

    #[cold]
    pub(super) fn no_proxy() -> Self {
        Self { status: 405, reason: "this is no proxy" }
    }

    #[cold]
    pub(super) fn long_head() -> Self {
        Self { status: 431, reason: "the header fields are longer than this side accepts" }
    }
}

impl From<Refusal> for Violation {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.reason)
    }
}

/// How many fields the head of a request or a response may have.
pub const MAX_FIELDS: usize = 100;

/// Whether a list of HTTP/2's has more than `most` fields, beside those that stand for the request line.
pub(crate) fn has_too_many(list: &Fields, most: usize) -> bool {
    list.len() > most && list.iter().filter(|(name, _)| !name.starts_with(b":")).count() > most
}

/// Where the head at the start of `bytes` ends: behind the first empty line, if it is there.
/// `scanned` remembers what was searched in vain, so that a head that trickles in is searched once.
pub(crate) fn head_end(bytes: &[u8], scanned: &mut usize) -> Option<usize> {
    // The line's end may be the last byte searched, or the last but one before a `\r`.
    let mut at = scanned.saturating_sub(2);
    while let Some(newline) = bytes.get(at..)?.iter().position(|byte| *byte == b'\n') {
        at += newline + 1;
        // A bare LF ends a line too (RFC 9112 §2.2): rpcx's clients write `CONNECT /_rpcx_ HTTP/1.0\n\n`.
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    *scanned = bytes.len();
    None
}

/// The first line of a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatusLine<'h> {
    pub(super) status: u16,
    pub(super) reason: &'h str,
    pub(super) http10: bool,
}

impl StatusLine<'_> {
    /// Whether another response follows to the same request (RFC 9110 §15.2).
    pub(super) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    /// Whether no body follows, whatever the fields say (RFC 9112 §6.3).
    fn is_bare(&self) -> bool {
        self.is_interim() || matches!(self.status, 204 | 304)
    }
}

/// Reads the whole head of a response by `read`, which has its first line and its fields.
pub(super) fn parse_response<'h, R>(
    head: &'h [u8],
    read: impl FnOnce(StatusLine<'h>, &[httparse::Header<'h>]) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let whole =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, head, &mut slots);
    let (Ok(httparse::Status::Complete(_)), Some(status), Some(version)) =
        (whole, parsed.code, parsed.version)
    else {
        return Err(Refusal::malformed("the head of the response is malformed"));
    };
    if status == 101 {
        return Err(Refusal::malformed("the peer changes to another protocol unasked"));
    }
    let line = StatusLine { status, reason: parsed.reason.unwrap_or_default(), http10: version == 0 };
    read(line, parsed.headers)
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Length(usize),
    Chunked,
    /// By the end of the connection; responses only.
    UntilClose,
}

/// What the fields of a head say of the body's end, gathered field by field.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    length: Option<u64>,
    chunked: bool,
}

impl Lengths {
    /// Takes a `Content-Length`. A number past 2^64 counts as that: it is too large either way.
    pub(super) fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(Refusal::malformed("the content-length is not a number"));
        }
        let digits = value.iter().map(|digit| u64::from(digit - b'0'));
        let length = digits.fold(0u64, |n, digit| n.saturating_mul(10).saturating_add(digit));
        match self.length.replace(length) {
            Some(other) if other != length => Err(Refusal::malformed("two content-lengths differ")),
            _ => Ok(()),
        }
    }

    /// Takes a `Transfer-Encoding`.
    pub(super) fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal { status: 501, reason: "the only transfer-encoding understood is chunked" });
        }
        if self.chunked {
            return Err(Refusal::malformed("the body is chunked twice"));
        }
        self.chunked = true;
        Ok(())
    }

    /// How the body of a response ends that begins so.
    pub(super) fn framing_of_response(&self, line: &StatusLine<'_>, room: usize) -> Result<Framing, Refusal> {
        match line.is_bare() {
            true => Ok(Framing::Length(0)),
            false => Ok(self.framing(line.http10, room)?.unwrap_or(Framing::UntilClose)),
        }
    }

    /// How the body ends, or `None` if no field says it; `room` is what is left of the limit.
    pub(super) fn framing(&self, http10: bool, room: usize) -> Result<Option<Framing>, Refusal> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Refusal::malformed("both transfer-encoding and content-length")),
            (true, None) if http10 => Err(Refusal::malformed("HTTP/1.0 has no transfer-encoding")),
            (true, None) => Ok(Some(Framing::Chunked)),
            (false, None) => Ok(None),
            (false, Some(length)) => match usize::try_from(length) {
                Ok(length) if length <= room => Ok(Some(Framing::Length(length))),
                _ => Err(Refusal::too_large()),
            },
        }
    }
}

/// Whether a `Host` is well-formed: a name or an address, and perhaps a port (RFC 9110 §7.2). It is empty where the
/// target has none.
pub(super) fn is_host(value: &[u8]) -> bool {
    let (name, port) = match value {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
            let (address, port) = rest.split_at(end);
            let is_address =
                address.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'));
            (&value[..0], port.get(1..).filter(|_| is_address && !address.is_empty()))
        }
        _ => {
            let end = value.iter().position(|byte| *byte == b':').unwrap_or(value.len());
            let (name, port) = value.split_at(end);
            (name, Some(port).filter(|port| !name.is_empty() || port.is_empty()))
        }
    };
    let is_port = match port {
        Some([]) => true,
        Some([b':', digits @ ..]) => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_port && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(byte))
}

/// `name` in lower case, written into `buffer`; `None` if it does not fit, as no name known here does.
pub(super) fn lower_case<'b>(name: &str, buffer: &'b mut [u8; 32]) -> Option<&'b str> {
    let lower = buffer.get_mut(..name.len())?;
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).ok()
}

/// The elements of a comma-separated list, without the blanks around them.
pub(super) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Adds a field to `metadata`. A repeated field is one list (RFC 9110 §5.3), of cookies as HTTP/2 may cut them up
/// (RFC 9113 §8.2.3).
pub(super) fn add_metadata(metadata: &mut Metadata, name: &str, value: Bytes) {
    let value = match metadata.bytes(name) {
        Some(earlier) => [&earlier[..], &value[..]].join(separator(name)).into(),
        None => value,
    };
    match USUAL_FIELDS.iter().find(|usual| **usual == name) {
        Some(usual) => metadata.insert(*usual, value),
        None => metadata.insert(Cow::Owned(name.to_owned()), value),
    }
}

/// Adds a field to `metadata` without a look at those of the same name: [`join_repeated`] makes one list of them.
pub(super) fn push_metadata(metadata: &mut Metadata, name: &str, value: Bytes) {
    match USUAL_FIELDS.iter().find(|usual| **usual == name) {
        Some(usual) => metadata.append(*usual, value),
        None => metadata.append(Cow::Owned(name.to_owned()), value),
    }
}

/// Makes one list of each repeated field, as [`add_metadata`] does, but of all its lines in one go.
pub(super) fn join_repeated(metadata: &mut Metadata) {
    metadata.unite(|name, values| values.join(separator(name)).into());
}

/// What stands between the values of a repeated field: cookies have their own.
fn separator(name: &str) -> &'static [u8] {
    if name == "cookie" { b"; " } else { b", " }
}

/// Names that need no allocation of their own: what clients send unasked, and what carries RPC metadata.
const USUAL_FIELDS: [&str; 13] = [
    "accept",
    "user-agent",
    "accept-language",
    "cookie",
    "log-id",
    "x-request-id",
    "x-bd-trace-id",
    "x-bd-span-id",
    "x-bd-parent-span-id",
    "x-forwarded-for",
    "traceparent",
    "tracestate",
    "baggage",
];

/// Writes a field whose name and value are known to be clean.
pub(super) fn field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// Writes metadata as fields. What [cannot be one](Carrier::Http) was refused before; of a failed call, as where the
/// answer's type stands among them, it is left out.
pub(super) fn metadata_fields(head: &mut impl WriteHead, metadata: &Metadata) {
    for (name, value) in metadata.iter() {
        if Carrier::Http.refusal(name, value).is_none() {
            head.field(name, value);
        }
    }
}

/// Whether `value` may stand in a head as it is (RFC 9110 §5.5).
pub(super) fn is_field_value(value: &[u8]) -> bool {
    value.iter().all(is_field_byte)
}

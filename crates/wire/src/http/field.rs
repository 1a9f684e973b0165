//! Header fields of all HTTP versions: valid characters, and which fields are metadata.

use std::borrow::Cow;

use bytes::Bytes;
use polyrpc_core::Metadata;

pub(crate) use polyrpc_core::carrier::is_token as is_field_name;
pub(crate) use polyrpc_core::carrier::{is_field_byte, is_metadata};

/// Whether a `Host` is well-formed: a name or an address, and optionally a port (RFC 9110 §7.2). It is empty if the
/// target has none.
pub(crate) fn is_host(value: &[u8]) -> bool {
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

/// Returns `name` in lower case, written into `buffer`; `None` if it does not fit, which means that the name is not
/// known here.
pub(crate) fn lower_case<'b>(name: &str, buffer: &'b mut [u8; 32]) -> Option<&'b str> {
    let lower = buffer.get_mut(..name.len())?;
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).ok()
}

/// Iterates over the elements of a comma-separated list, without surrounding blanks.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Adds a field to `metadata`. A repeated field forms one list (RFC 9110 §5.3), of cookies as HTTP/2 may split them
/// (RFC 9113 §8.2.3).
pub(crate) fn add_metadata(metadata: &mut Metadata, name: &str, value: Bytes) {
    let value = match metadata.bytes(name) {
        Some(earlier) => [&earlier[..], &value[..]].join(separator(name)).into(),
        None => value,
    };
    match USUAL_FIELDS.iter().find(|usual| **usual == name) {
        Some(usual) => metadata.insert(*usual, value),
        None => metadata.insert(Cow::Owned(name.to_owned()), value),
    }
}

/// Adds the value of a field to those of earlier lines, with which it forms one list (RFC 9110 §5.3).
pub(crate) fn join_values(earlier: &mut Option<Bytes>, value: Bytes) {
    *earlier = Some(match earlier.take() {
        Some(earlier) => [&earlier[..], &value[..]].join(&b", "[..]).into(),
        None => value,
    });
}

/// Adds a field to `metadata` without looking for fields with the same name: [`join_repeated`] joins them.
pub(crate) fn push_metadata(metadata: &mut Metadata, name: &str, value: Bytes) {
    match USUAL_FIELDS.iter().find(|usual| **usual == name) {
        Some(usual) => metadata.append(*usual, value),
        None => metadata.append(Cow::Owned(name.to_owned()), value),
    }
}

/// Joins the lines of each repeated field into one list, like [`add_metadata`], but all at once.
pub(crate) fn join_repeated(metadata: &mut Metadata) {
    metadata.merge_duplicates(|name, values| values.join(separator(name)).into());
}

/// Returns the separator between the values of a repeated field: cookies have their own.
fn separator(name: &str) -> &'static [u8] {
    if name == "cookie" { b"; " } else { b", " }
}

/// Names that need no separate allocation: fields that clients send by default, and those that carry RPC metadata.
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

/// Writes a field whose name and value are known to be valid.
pub(crate) fn field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// Whether `value` may be sent in a head unchanged (RFC 9110 §5.5).
pub(crate) fn is_field_value(value: &[u8]) -> bool {
    value.iter().all(is_field_byte)
}

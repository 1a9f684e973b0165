//! Failures: `grpc-status` is the number of our [`Code`], `grpc-message` its percent-encoded text.
//!
//! If the response has no `grpc-status`, the HTTP status (`doc/http-grpc-status-mapping.md`) or the error code of the
//! reset (PROTOCOL-HTTP2.md, "Errors") determines the failure.

use std::borrow::Cow;

use bytes::Bytes;
use polyrpc_core::digits::{hexadecimal, parse_decimal, put_decimal};
use polyrpc_core::session::NotFound;
use polyrpc_core::status::texts;
use polyrpc_core::{Call, Code, Fault, Metadata, Retry, Scope, Status};

use super::{coding, metadata};
use crate::failure_text::shorten;

/// Passes the fields that describe the outcome of a call to `write`.
pub(crate) fn write(failure: Option<&Status>, trailers: &Metadata, mut write: impl FnMut(&[u8], &[u8])) {
    match failure {
        None => write(b"grpc-status", b"0"),
        Some(failure) => write_failure(failure, &mut write),
    }
    metadata::write(trailers, write);
}

#[cold]
fn write_failure(failure: &Status, write: &mut impl FnMut(&[u8], &[u8])) {
    let mut text = Vec::new();
    // brpc also writes its own failures by their codes.
    put_decimal(&mut text, failure.code() as u64);
    write(b"grpc-status", &text);
    if !failure.message().is_empty() {
        text.clear();
        encode(&shorten(failure.message()), &mut text);
        write(b"grpc-message", &text);
    }
    if !failure.details().is_empty() {
        write(b"grpc-status-details-bin", metadata::encode(failure.details()).as_bytes());
    }
    if failure.code() == Code::Unimplemented {
        // Informs a peer whose compression is not supported which ones are.
        write(b"grpc-accept-encoding", coding::ACCEPTED);
    }
}

/// Returns the code for a number; `None` for 0, which is not a failure, and for numbers that gRPC has not assigned.
fn code(number: u32) -> Option<Code> {
    Code::ALL.into_iter().find(|code| *code as u32 == number)
}

/// Parses the outcome from the trailers: `grpc-status`, `grpc-message`, `grpc-status-details-bin`.
pub(super) fn read(number: &[u8], message: Option<&[u8]>, details: Bytes) -> Result<(), Status> {
    let parsed = std::str::from_utf8(number).ok().and_then(parse_decimal::<u32>);
    match parsed {
        Some(0) => Ok(()),
        // An unknown number maps to UNKNOWN (`doc/statuscodes.md`), whatever its text.
        _ => {
            let code = parsed.and_then(code).unwrap_or(Code::Unknown);
            Err(texts::from_peer(code, message.map_or(String::new(), decode)).with_details(details))
        }
    }
}

/// Maps an HTTP status of a response without `grpc-status`.
#[cold]
pub(super) fn from_http(status: u16) -> Status {
    let code = match status {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    texts::failure(code, format!("the server answered with HTTP status {status} and no grpc-status"))
}

/// Maps the error code of a reset by the peer.
#[cold]
pub(super) fn from_reset(code: u32) -> Status {
    let status = match code {
        // REFUSED_STREAM: the peer has not processed the stream.
        7 => Status::unavailable("the server refused the stream")
            .with_scope(Scope::Connection)
            .with_retry(Retry::Elsewhere),
        // CANCEL.
        8 => Status::cancelled("the server reset the stream"),
        // ENHANCE_YOUR_CALM.
        11 => Status::resource_exhausted("the server sent ENHANCE_YOUR_CALM").with_retry(Retry::IfIdempotent),
        // INADEQUATE_SECURITY.
        12 => Status::permission_denied("the connection is not secure enough for the server"),
        _ => Status::internal(format!("the server reset the stream with HTTP/2 error {code}")),
    };
    status.with_fault(Fault::Peer)
}

/// Returns the failure of a call to a service or method that does not exist.
pub(crate) fn not_found(call: &Call<'_>, missing: NotFound) -> Status {
    Status::unimplemented(match missing {
        NotFound::Service => format!("unknown service {}", call.service_or_function()),
        NotFound::Method => format!("unknown method {} for service {}", call.method, call.service),
    })
}

/// Appends percent-encoded text: printable ASCII except `%` as it is, all other characters as encoded bytes.
pub(super) fn encode(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let last = text.len().saturating_sub(1);
    for (at, &byte) in text.as_bytes().iter().enumerate() {
        match byte {
            // A header value does not start or end with a space.
            b' ' if at == 0 || at == last => out.extend_from_slice(b"%20"),
            b' '..=b'~' if byte != b'%' => out.push(byte),
            _ => out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

/// Decodes percent-encoded text. Malformed sequences are kept as they are, so that no message is lost.
pub(super) fn decode(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = match behind {
            [high, low, ..] if first == b'%' => hexadecimal(*high).zip(hexadecimal(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &behind[2..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(_) => String::from_utf8(bytes).unwrap_or_default(),
        Cow::Owned(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode_to_string(text: &str) -> String {
        let mut out = Vec::new();
        encode(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn message_round_trips_through_its_encoding() {
        // The text of the interop test special_status_message.
        let text = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
        let want = "%09%0Atest with whitespace%0D%0Aand Unicode BMP %E2%98%BA and non-BMP %F0%9F%98%88%09%0A";
        assert_eq!(encode_to_string(text), want);
        assert_eq!(decode(want.as_bytes()), text);
        assert_eq!(decode(encode_to_string("100 %").as_bytes()), "100 %");
        assert_eq!(encode_to_string(" a b "), "%20a b%20");
    }

    #[test]
    fn malformed_percent_encoding_is_kept() {
        assert_eq!(decode(b"50% and %zz and %4"), "50% and %zz and %4");
        assert_eq!(decode(b"%ff"), "\u{fffd}");
    }

    #[test]
    fn every_code_round_trips_and_other_numbers_are_unknown() {
        for code in Code::ALL {
            let text = (code as u8).to_string();
            assert_eq!(read(text.as_bytes(), None, Bytes::new()).unwrap_err().code(), code);
        }
        assert!(read(b"0", Some(b"ignored"), Bytes::new()).is_ok());
        for number in ["17", "", "-1", "+0", "nine", "99999999999"] {
            let status = read(number.as_bytes(), Some(b"why"), Bytes::new()).unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Unknown, "why"), "{number}");
        }
    }
}

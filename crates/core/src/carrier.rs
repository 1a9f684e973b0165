//! Rules for the metadata that a protocol can carry.

use std::fmt;

use crate::{Fault, Metadata, Retry, Status};

/// How a protocol carries metadata, and therefore which entries cannot be sent. Clients reject such a call before
/// sending it, servers fail it instead of sending the response: no entry is dropped silently.
///
/// ```
/// use polyrpc_core::Carrier;
/// use polyrpc_core::Metadata;
///
/// let metadata: Metadata = [("tenant", "a"), ("te", "trailers")].into_iter().collect();
/// assert!(Carrier::Map.check(&metadata).is_ok());
/// let misfit = Carrier::Grpc.check(&metadata).unwrap_err();
/// assert_eq!(misfit.key(), "te");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// No check: the protocol carries all metadata, or none.
    Any,
    /// A map from any text to any bytes, with one value per key (brpc's user fields, rpcx's metadata).
    Map,
    /// HTTP fields in the encoding of gRPC and gRPC-Web: names in lower case, values of printable ASCII, binary values
    /// in base64 under names that end in `-bin`.
    Grpc,
    /// Plain HTTP fields.
    Http,
    /// Plain HTTP fields of a request, where receivers do not treat those named `content-*` as metadata.
    HttpRequest,
}

/// A metadata entry that cannot be sent, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedEntry<'m> {
    key: &'m str,
    reason: &'static str,
}

impl Carrier {
    /// Checks that all entries can be sent.
    ///
    /// # Errors
    ///
    /// The first entry that cannot be sent.
    #[inline]
    pub fn check(self, metadata: &Metadata) -> Result<(), UnsupportedEntry<'_>> {
        if metadata.is_empty() { Ok(()) } else { self.check_entries(metadata) }
    }

    /// Iterates over the entries that cannot be sent. A [`Map`](Self::Map) key with several values is not reported
    /// here.
    pub fn unsupported(self, metadata: &Metadata) -> impl Iterator<Item = UnsupportedEntry<'_>> {
        metadata.iter().filter_map(move |(key, value)| {
            self.refusal(key, value).map(|reason| UnsupportedEntry { key, reason })
        })
    }

    /// Whether HTTP fields with this name are never metadata: they belong to gRPC, to HTTP/2, to the connection or to
    /// the message body. Case-insensitive.
    pub fn reserves(key: &str) -> bool {
        reserved_reason(key).is_some()
    }

    #[inline(never)]
    fn check_entries(self, metadata: &Metadata) -> Result<(), UnsupportedEntry<'_>> {
        if self == Self::Map {
            return metadata
                .repeated()
                .map_or(Ok(()), |key| Err(UnsupportedEntry { key, reason: REPEATED_KEY_REASON }));
        }
        self.unsupported(metadata).next().map_or(Ok(()), Err)
    }

    /// Returns why an entry cannot be sent; `None` if it can.
    pub fn refusal(self, key: &str, value: &[u8]) -> Option<&'static str> {
        let is_clean = match self {
            Self::Any | Self::Map => return None,
            Self::Grpc => is_grpc_name(key),
            Self::Http | Self::HttpRequest => is_token(key),
        };
        match reserved_reason(key) {
            Some(reason) => Some(reason),
            None if !is_clean => Some(match self {
                Self::Grpc => "its name has other characters than letters, digits, `_`, `-` and `.`",
                _ => "its name is not a valid HTTP header name",
            }),
            None if self == Self::HttpRequest && is_content(key) => {
                Some("request headers named `content-*` are not metadata")
            }
            None if self == Self::Grpc && is_binary(key) => None,
            None => self.refusal_of_text(value),
        }
    }

    fn refusal_of_text(self, value: &[u8]) -> Option<&'static str> {
        let is_clean = match self {
            Self::Grpc => value.iter().all(|byte| matches!(byte, b' '..=b'~')),
            _ => value.iter().all(is_field_byte),
        };
        match self {
            Self::Grpc if !is_clean => {
                Some("its value is not printable ASCII: bytes need a name that ends in `-bin`")
            }
            _ if !is_clean => Some("its value has control characters"),
            _ if value.len() != value.trim_ascii().len() => {
                Some("its value begins or ends with a blank, which HTTP headers do not keep")
            }
            _ => None,
        }
    }
}

impl<'m> UnsupportedEntry<'m> {
    /// Returns the key.
    pub fn key(&self) -> &'m str {
        self.key
    }

    /// Returns why the entry cannot be sent.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Converts to the failure of an outgoing call that is not sent.
    #[cold]
    pub fn into_refusal(self) -> Status {
        Status::invalid_argument(format!("{self}; nothing was sent, and retrying does not help"))
            .with_fault(Fault::Caller)
            .with_retry(Retry::Never)
    }

    /// Converts to the failure of a call whose handler returned the entry.
    #[cold]
    pub fn into_failure(self) -> Status {
        Status::internal(format!("the response cannot be sent: {self}"))
            .with_fault(Fault::Us)
            .with_retry(Retry::Never)
    }
}

impl fmt::Display for UnsupportedEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, reason } = self;
        write!(f, "the protocol cannot carry the metadata {key:?}: {reason}")
    }
}

const REPEATED_KEY_REASON: &str = "it has several values, of which the peer would keep the last";

/// Returns why an HTTP field is never metadata; `None` if it may be.
fn reserved_reason(key: &str) -> Option<&'static str> {
    let is = |name: &&str| name.eq_ignore_ascii_case(key);
    match () {
        () if key.starts_with(':') => Some("names that begin with a colon are HTTP/2's own"),
        () if key.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("grpc-")) => {
            Some("names that begin with `grpc-` are gRPC's own")
        }
        () if ENTITY_HEADERS.iter().any(is) => Some("the header describes the bytes of the message"),
        () if HOP_BY_HOP_HEADERS.iter().any(is) => Some("the header is specific to one connection"),
        () => None,
    }
}

/// Whether a received HTTP field with this lower-case name is metadata.
pub fn is_metadata(name: &str) -> bool {
    !name.starts_with("content-") && !HOP_BY_HOP_HEADERS.contains(&name)
}

/// Whether a field describes the message content.
fn is_content(name: &str) -> bool {
    name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"))
}

const ENTITY_HEADERS: [&str; 3] = ["content-type", "content-length", "content-encoding"];

/// Hop-by-hop fields (RFC 9110 §7.6.1), and others that a proxy does not forward.
const HOP_BY_HOP_HEADERS: [&str; 11] = [
    "connection",
    "transfer-encoding",
    "host",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "upgrade",
    "expect",
];

/// Whether gRPC treats the values of this key as binary.
pub fn is_binary(name: &str) -> bool {
    name.get(name.len().wrapping_sub(4)..).is_some_and(|end| end.eq_ignore_ascii_case("-bin"))
}

/// `Header-Name → 1*( %x30-39 / %x61-7A / "_" / "-" / "." )`, case-insensitive.
fn is_grpc_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !name.is_empty() && name.bytes().all(known)
}

/// Whether a name is a token (RFC 9110 §5.6.2).
pub fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Whether a byte is allowed in a field value (RFC 9110 §5.5).
pub fn is_field_byte(byte: &u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    /// Key and value, and whether gRPC and HTTP can carry them.
    const TABLE: [(&str, &[u8], bool, bool); 30] = [
        ("tenant", b"a b", true, true),
        ("Tenant_1.x", b"", true, true),
        ("traceparent", b"00-x", true, true),
        ("authorization", b"Bearer x", true, true),
        ("content-language", b"de", true, true),
        ("data-bin", b"\x00\xff\r\n", true, false),
        ("Data-Bin", b"\xff", true, true),
        ("data", b"\xff", false, true),
        ("data", b"a\tb", false, true),
        ("data", b"a\nb", false, false),
        ("data", b"a\x7f", false, false),
        ("data", b" a", false, false),
        ("data", b"a ", false, false),
        ("a!b", b"", false, true),
        ("a b", b"", false, false),
        ("a\r\nb", b"", false, false),
        ("", b"", false, false),
        ("\u{7a7a}", b"", false, false),
        (":path", b"/", false, false),
        ("grpc-status", b"0", false, false),
        ("Grpc-Timeout", b"1S", false, false),
        ("grpc-trace-bin", b"", false, false),
        ("content-type", b"text/plain", false, false),
        ("Content-Length", b"1", false, false),
        ("content-encoding", b"gzip", false, false),
        ("host", b"a", false, false),
        ("te", b"trailers", false, false),
        ("connection", b"close", false, false),
        ("Transfer-Encoding", b"chunked", false, false),
        ("upgrade", b"h2c", false, false),
    ];

    #[test]
    fn invalid_header_field_error_names_the_key_and_the_reason() {
        for (key, value, by_grpc, by_http) in TABLE {
            let mut metadata = Metadata::new();
            metadata.insert("fine", "x");
            metadata.insert(key, value);
            for (carrier, carried) in [(Carrier::Grpc, by_grpc), (Carrier::Http, by_http)] {
                let found = carrier.check(&metadata).err().map(|misfit| misfit.key());
                assert_eq!(found, (!carried).then_some(key), "{carrier:?}: {key:?} {value:?}");
            }
            assert_eq!(Carrier::Map.check(&metadata), Ok(()));
            assert_eq!(Carrier::Any.check(&metadata), Ok(()));
        }
    }

    #[test]
    fn entity_headers_are_allowed_in_responses_only() {
        let metadata: Metadata = [("Content-Language", "de")].into_iter().collect();
        for carrier in [Carrier::Grpc, Carrier::Http] {
            assert_eq!(carrier.check(&metadata), Ok(()));
        }
        assert_eq!(Carrier::HttpRequest.check(&metadata).unwrap_err().key(), "Content-Language");
    }

    #[test]
    fn map_carrier_rejects_a_second_value_of_a_key() {
        for count in [1, 40] {
            let mut metadata = Metadata::new();
            (0..count).for_each(|n| metadata.append(format!("key-{n}"), "v"));
            assert_eq!(Carrier::Map.check(&metadata), Ok(()));
            metadata.append("key-0", "w");
            assert_eq!(Carrier::Map.check(&metadata).unwrap_err().key(), "key-0");
            assert_eq!(Carrier::Grpc.check(&metadata), Ok(()));
        }
    }

    #[test]
    fn rejection_is_not_retryable_and_hides_the_value() {
        let mut metadata = Metadata::new();
        metadata.insert("k", "hunter2\n");
        let misfit = Carrier::Grpc.check(&metadata).unwrap_err();
        for (status, code) in
            [(misfit.into_refusal(), Code::InvalidArgument), (misfit.into_failure(), Code::Internal)]
        {
            assert_eq!((status.code(), status.retry()), (code, Retry::Never));
            assert!(status.message().contains("\"k\""), "{status}");
            assert!(!status.message().contains("hunter2"), "{status}");
        }
    }
}

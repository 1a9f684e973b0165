//! Text of a head: shared slices, and parsers for the values of single fields.

use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::Compression;
use polyrpc_core::digits::parse_decimal;

/// Shared text: a slice of a head that is known to be UTF-8.
#[derive(Debug, Clone)]
pub(crate) struct Text(pub(crate) Bytes);

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns the text without `prefix`, or all of it.
    pub(crate) fn strip_prefix(&self, prefix: &str) -> Bytes {
        let rest = self.as_str().strip_prefix(prefix).unwrap_or(self.as_str());
        self.0.slice_ref(rest.as_bytes())
    }
}

/// Returns the compression named by a `Content-Encoding`.
pub(crate) fn coding_of(value: &[u8]) -> Option<Compression> {
    match () {
        () if value.is_empty() || value.eq_ignore_ascii_case(b"identity") => Some(Compression::None),
        () if value.eq_ignore_ascii_case(b"gzip") || value.eq_ignore_ascii_case(b"x-gzip") => {
            Some(Compression::Gzip)
        }
        () if value.eq_ignore_ascii_case(b"deflate") => Some(Compression::Zlib),
        () => None,
    }
}

/// Parses a timeout in milliseconds, of up to ten digits; `None` if it is malformed.
pub(crate) fn milliseconds(value: &[u8]) -> Option<Duration> {
    digits(value).map(Duration::from_millis)
}

/// Parses a number of up to ten digits.
fn digits(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok().filter(|text| text.len() <= 10).and_then(parse_decimal)
}

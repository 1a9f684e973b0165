//! Typed details of a failure: the `google.rpc.Status` that contains them, each as a `google.protobuf.Any`.

use bytes::Bytes;

use super::Status;
use crate::protobuf::{Reader, WireType, put_tag, put_varint};

/// One detail of a failure, as a `google.protobuf.Any`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    /// Type URL: `type.googleapis.com/google.rpc.RetryInfo`.
    pub type_url: String,
    /// The encoded protobuf message.
    pub value: Bytes,
}

impl Detail {
    /// Returns the full name of the message: `google.rpc.RetryInfo`.
    pub fn type_name(&self) -> &str {
        self.type_url.rsplit_once('/').map_or(&self.type_url, |(_, name)| name)
    }
}

/// Field numbers of `google.rpc.Status`.
const CODE: u32 = 1;
const MESSAGE: u32 = 2;
const DETAILS: u32 = 3;

/// Field numbers of `google.protobuf.Any`.
const TYPE_URL: u32 = 1;
const VALUE: u32 = 2;

impl Status {
    /// Adds a detail after the existing ones. Code and text of the enclosing `google.rpc.Status` are those of the
    /// failure when the first detail is added.
    ///
    /// ```
    /// use polyrpc_core::Status;
    ///
    /// let one_second = [0x0a, 0x02, 0x08, 0x01];
    /// let status = Status::unavailable("later")
    ///     .with_detail("type.googleapis.com/google.rpc.RetryInfo", &one_second);
    /// assert_eq!(status.typed_details()[0].type_name(), "google.rpc.RetryInfo");
    /// ```
    #[must_use]
    pub fn with_detail(self, type_url: &str, value: &[u8]) -> Self {
        let mut details = match self.details().is_empty() {
            true => self.as_message(),
            false => self.details().to_vec(),
        };
        let mut any = Vec::new();
        put_bytes(&mut any, TYPE_URL, type_url.as_bytes());
        put_bytes(&mut any, VALUE, value);
        put_bytes(&mut details, DETAILS, &any);
        self.with_details(details)
    }

    /// Returns the details. Empty if there are none, or if they are not a `google.rpc.Status`.
    pub fn typed_details(&self) -> Vec<Detail> {
        read(self.details()).unwrap_or_default()
    }

    /// Encodes the failure as a `google.rpc.Status` without details.
    fn as_message(&self) -> Vec<u8> {
        let mut message = Vec::new();
        put_tag(&mut message, CODE, WireType::Varint);
        put_varint(&mut message, self.code() as u64);
        put_bytes(&mut message, MESSAGE, self.message().as_bytes());
        message
    }
}

fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, WireType::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Parses the details of a `google.rpc.Status`; `None` if it is malformed.
fn read(status: &Bytes) -> Option<Vec<Detail>> {
    let mut reader = Reader::new(status);
    let mut details = Vec::new();
    while !reader.is_empty() {
        match reader.tag()? {
            (DETAILS, WireType::Bytes) => details.push(read_any(status, reader.bytes()?)?),
            (number, wire) => reader.skip(number, wire)?,
        }
    }
    Some(details)
}

/// Parses one detail, whose bytes lie in `whole`.
fn read_any(whole: &Bytes, any: &[u8]) -> Option<Detail> {
    let mut reader = Reader::new(any);
    let mut detail = Detail { type_url: String::new(), value: Bytes::new() };
    while !reader.is_empty() {
        match reader.tag()? {
            (TYPE_URL, WireType::Bytes) => {
                detail.type_url = std::str::from_utf8(reader.bytes()?).ok()?.to_owned();
            }
            (VALUE, WireType::Bytes) => detail.value = whole.slice_ref(reader.bytes()?),
            (number, wire) => reader.skip(number, wire)?,
        }
    }
    Some(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_round_trip_in_order_with_code_and_message() {
        let status = Status::not_found("x").with_detail("t/a.A", b"1").with_detail("t/b.B", &[0; 200]);
        let details = status.typed_details();
        assert_eq!(details[0], Detail { type_url: "t/a.A".into(), value: Bytes::from_static(b"1") });
        assert_eq!((details[1].type_name(), details[1].value.len(), details.len()), ("b.B", 200, 2));
        assert_eq!(status.details()[..5], [0x08, 5, 0x12, 1, b'x']);
    }

    #[test]
    fn malformed_status_has_no_details() {
        assert!(Status::internal("").typed_details().is_empty());
        for broken in [&b"\x1a\x05\x0a"[..], b"\x1b", b"\x1a\x03\x0a\x01\xff", b"details"] {
            assert!(Status::internal("").with_details(broken).typed_details().is_empty(), "{broken:?}");
        }
    }
}

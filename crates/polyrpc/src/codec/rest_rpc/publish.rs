//! Encoding of published values up to v0.20: a text verbatim, anything else as MessagePack within a text.

use bytes::Bytes;
use polyrpc_core::{Format, Status};
use polyrpc_payload::msgpack::{Reader, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::message_pack;
use super::super::value::{encode, unreadable, unwritable};
use super::pack_text;
use super::text::{self, ReadOutcome, WriteOutcome};
use super::value_kind::ValueKind;

/// Encodes a value to publish.
pub(crate) fn publish(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Status> {
    let packed = match ValueKind::from_value(value) {
        ValueKind::Text => pack_text(value)?,
        _ => encode(value, Format::MessagePackArray)?,
    };
    Ok(unpack(packed))
}

/// Encodes a value to publish since v0.21: like a result.
pub(crate) fn publish_coded(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Status> {
    match text::write(value, false) {
        WriteOutcome::Text(text) => Ok(text),
        WriteOutcome::Wrong(error) => Err(unwritable(&error)),
        WriteOutcome::NotBasic => encode(value, Format::StructPack),
    }
}

/// Unpacks a value that a client has packed for a publishing function of the server: a text is extracted from its
/// MessagePack, like the last argument of a function that is registered for publishing (rest_rpc `router.h`, `is_pub`).
pub(crate) fn unpack(packed: Bytes) -> Bytes {
    let mut reader = Reader::new(&packed);
    match reader.next() {
        Ok(Token::Str(text)) if reader.is_empty() => packed.slice_ref(text),
        _ => packed,
    }
}

/// Decodes a published value.
pub(crate) fn decode_published<T: DeserializeOwned>(data: &[u8]) -> Result<T, Status> {
    match text::read_string(data) {
        ReadOutcome::Value(text) => Ok(text),
        ReadOutcome::Wrong(error) => Err(unreadable(&error)),
        ReadOutcome::NotBasic => message_pack::from_slice(data).map_err(|error| unreadable(&error)),
    }
}

#[cfg(test)]
mod tests {
    use polyrpc_payload::ByteString;

    use super::*;

    #[test]
    fn string_is_published_as_is_and_other_values_as_messagepack() {
        assert_eq!(publish("hello").unwrap(), "hello");
        assert_eq!(publish(&(1, "a")).unwrap()[..], [0x92, 1, 0xa1, b'a']);
        assert_eq!(decode_published::<String>(b"hello").unwrap(), "hello");
        let not_utf8 = ByteString::from(b"\xff".to_vec());
        assert_eq!(publish(&not_utf8).unwrap()[..], *b"\xff");
        assert_eq!(decode_published::<ByteString>(b"\xff").unwrap(), not_utf8);
        assert_eq!(decode_published::<(i32, String)>(&[0x92, 1, 0xa1, b'a']).unwrap(), (1, "a".to_owned()));
        assert_eq!(decode_published::<i32>(b"\xff\xff\xc1").unwrap(), -1, "bytes after a value are ignored");
        assert!(decode_published::<i32>(b"\xc1").is_err(), "no value begins with it");
    }

    #[test]
    fn message_packed_by_a_client_is_unpacked_once() {
        assert_eq!(unpack(Bytes::from_static(b"\xa6pubval")), "pubval");
        assert_eq!(unpack(Bytes::from_static(b"\x92\x01\x02"))[..], [0x92, 1, 2]);
    }
}

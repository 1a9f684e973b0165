//! Custom metadata: headers, with base64 values if their name ends in `-bin` (PROTOCOL-HTTP2.md, "Custom-Metadata").

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD_NO_PAD};
use base64::{Engine, alphabet};
use bytes::Bytes;

use polyrpc_core::carrier::{Carrier, is_binary};
use polyrpc_core::{Metadata, ReceivedMetadata};

/// Adds a header to the user's metadata. A binary header that is not valid base64 is dropped: it has no value.
pub(crate) fn read(name: &str, value: &[u8], metadata: &mut ReceivedMetadata) {
    if !is_binary(name) {
        return metadata.append(name, value);
    }
    // Several values may be joined by commas, which base64 does not contain.
    for value in value.split(|&byte| byte == b',') {
        metadata.append_with(name, |values| LENIENT.decode_vec(value.trim_ascii(), values).ok());
    }
}

/// Passes the user's metadata as headers to `write`. Entries that [cannot be sent](Carrier::Grpc) were rejected before;
/// those of a failed call are dropped.
pub(crate) fn write(metadata: &Metadata, mut write: impl FnMut(&[u8], &[u8])) {
    let (mut lower, mut encoded) = (String::new(), String::new());
    for (name, value) in metadata.iter() {
        if Carrier::Grpc.refusal(name, value).is_some() {
            continue;
        }
        let name = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower.clear();
            lower.extend(name.chars().map(|char| char.to_ascii_lowercase()));
            lower.as_str()
        } else {
            name
        };
        if is_binary(name) {
            encoded.clear();
            STANDARD_NO_PAD.encode_string(value, &mut encoded);
            write(name.as_bytes(), encoded.as_bytes());
        } else {
            write(name.as_bytes(), value);
        }
    }
}

/// Whether a received header belongs to the protocol rather than to the user.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with(':')
        || name.starts_with("grpc-")
        || matches!(
            name,
            "content-type"
                | "te"
                | "content-length"
                | "connection"
                | "keep-alive"
                | "proxy-connection"
                | "transfer-encoding"
                | "upgrade"
                | "host"
        )
}

/// Decodes base64, padded or not.
pub(crate) fn decode(text: &[u8]) -> Option<Bytes> {
    LENIENT.decode(text).ok().map(Bytes::from)
}

static LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Encodes bytes in base64 without padding, as gRPC requires.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_headers(metadata: &Metadata) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        write(metadata, |name, value| headers.push((text(name), text(value))));
        headers
    }

    #[test]
    fn text_is_sent_as_is_and_bytes_in_base64() {
        let metadata: Metadata =
            [("Key", &b"value"[..]), ("data-bin", &[0xab, 0xab, 0xab, 1])].into_iter().collect();
        let headers = to_headers(&metadata);
        assert_eq!(headers, [("key".into(), "value".into()), ("data-bin".into(), "q6urAQ".into())]);
        let mut back = ReceivedMetadata::default();
        headers.iter().for_each(|(name, value)| read(name, value.as_bytes(), &mut back));
        let back = back.into_metadata();
        assert_eq!(back.get("key"), Some("value"));
        assert_eq!(back.bytes("data-bin").unwrap()[..], [0xab, 0xab, 0xab, 1]);
    }

    #[test]
    fn base64_padding_is_optional_and_joined_values_are_split() {
        let mut metadata = ReceivedMetadata::default();
        read("a-bin", b"YQ==, YWI", &mut metadata);
        read("b-bin", b"!", &mut metadata);
        let metadata = metadata.into_metadata();
        let values: Vec<_> = metadata.all("a-bin").map(|value| value.to_vec()).collect();
        assert_eq!(values, [b"a".to_vec(), b"ab".to_vec()]);
        assert!(metadata.bytes("b-bin").is_none());
    }

    #[test]
    fn invalid_header_is_left_out_of_a_failed_response() {
        let entries =
            [("grpc-status", "0"), (":path", "/"), ("te", "x"), ("a b", "c"), ("line", "a\nb"), ("", "x")];
        assert_eq!(to_headers(&entries.into_iter().collect()), []);
    }

    #[test]
    fn key_can_have_several_values() {
        let mut metadata = Metadata::new();
        metadata.append("k", "1");
        metadata.append("k", "2");
        assert_eq!(to_headers(&metadata).len(), 2);
    }
}

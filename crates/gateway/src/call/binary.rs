//! Binary metadata: gRPC has bytes under keys that end in `-bin`, HTTP has the same in base64.

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD_NO_PAD};
use base64::{alphabet, engine::DecodePaddingMode};
use bytes::Bytes;
use polyrpc::{Metadata, Protocol};
use polyrpc_core::Carrier;
use polyrpc_core::carrier::is_binary;
use polyrpc_core::protocol::MetadataSupport;

/// Whether values of binary keys are bytes, as received.
pub(super) fn are_bytes(protocol: Protocol) -> bool {
    carrier(protocol) == Some(Carrier::Grpc)
}

/// Translates binary values between gRPC and HTTP. Other protocols carry any bytes.
///
/// # Errors
///
/// The key of a text that is not base64.
pub(super) fn translate(from: Protocol, to: Protocol, metadata: &mut Metadata) -> Result<(), String> {
    translate_with(from, to, metadata, |key, _| Err(key.to_owned()))
}

/// The same for what a server sent. A text that is not base64 stands for its own bytes: a field is no reason to lose the
/// response.
pub(super) fn translate_response(from: Protocol, to: Protocol, metadata: &mut Metadata) {
    let _ = translate_with(from, to, metadata, |_, text| Ok(text.clone()));
}

fn translate_with(
    from: Protocol,
    to: Protocol,
    metadata: &mut Metadata,
    wrong: impl Fn(&str, &Bytes) -> Result<Bytes, String>,
) -> Result<(), String> {
    let encodes = are_bytes(from) && is_text(to);
    let decodes = is_text(from) && are_bytes(to);
    if !encodes && !decodes || !metadata.iter().any(|(key, _)| is_binary(key)) {
        return Ok(());
    }
    let mut all = Metadata::new();
    for (key, value) in metadata.iter() {
        match is_binary(key) {
            false => all.append(key.to_owned(), value.clone()),
            true if encodes => all.append(key.to_owned(), STANDARD_NO_PAD.encode(value)),
            true => match decode_values(value) {
                Some(values) => values.into_iter().for_each(|value| all.append(key.to_owned(), value)),
                None => all.append(key.to_owned(), wrong(key, value)?),
            },
        }
    }
    *metadata = all;
    Ok(())
}

/// The values of a field: commas, which base64 does not have, separate them.
fn decode_values(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    text.split(|byte| *byte == b',').map(|value| BASE64.decode(value.trim_ascii()).ok()).collect()
}

fn is_text(protocol: Protocol) -> bool {
    matches!(carrier(protocol), Some(Carrier::Http | Carrier::HttpRequest))
}

fn carrier(protocol: Protocol) -> Option<Carrier> {
    match protocol.descriptor().capabilities.metadata {
        MetadataSupport::Carried(carrier) => Some(carrier),
        MetadataSupport::Refused => None,
    }
}

/// Padded or not.
static BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use super::*;

    fn values(metadata: &Metadata) -> Vec<Vec<u8>> {
        metadata.iter().map(|(_, value)| value.to_vec()).collect()
    }

    #[test]
    fn bytes_are_encoded_once_towards_http_and_decoded_once_from_it() {
        let mut metadata = Metadata::new();
        metadata.append("a-bin", &b"\x00\x01\x02\xff"[..]);
        metadata.append("plain", "AAEC");
        metadata.append("a-bin", &b""[..]);
        let sent = metadata.clone();
        translate(Protocol::Grpc, Protocol::Http, &mut metadata).unwrap();
        assert_eq!(values(&metadata), [&b"AAEC/w"[..], b"AAEC", b""]);
        translate(Protocol::Http, Protocol::Grpc, &mut metadata).unwrap();
        assert_eq!(values(&metadata), values(&sent));
        for other in [Protocol::Grpc, Protocol::Rpcx, Protocol::BaiduStd] {
            translate(Protocol::Grpc, other, &mut metadata).unwrap();
            assert_eq!(values(&metadata), values(&sent));
        }
    }

    #[test]
    fn joined_texts_become_several_values_and_wrong_ones_are_refused() {
        let field = |text: &'static str| {
            let mut metadata = Metadata::new();
            metadata.append("a-bin", text);
            metadata
        };
        let mut several = field("AAEC/w==, AA");
        translate(Protocol::Http, Protocol::Grpc, &mut several).unwrap();
        assert_eq!(values(&several), [&b"\x00\x01\x02\xff"[..], b"\x00"]);
        let mut wrong = field("not base64!");
        assert_eq!(translate(Protocol::Http, Protocol::Grpc, &mut wrong), Err("a-bin".to_owned()));
        translate_response(Protocol::Http, Protocol::Grpc, &mut wrong);
        assert_eq!(values(&wrong), [b"not base64!"]);
    }
}

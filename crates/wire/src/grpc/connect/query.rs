//! Calls by GET, with the message in the query ("Unary-Get-Request").

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use polyrpc_core::{Compression, Format, Status};

use super::kind;
use crate::grpc::coding;
use crate::http::mapping::query::unescape;

/// Parsed query of a GET.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) format: Format,
    pub(crate) compression: Compression,
    pub(crate) message: Bytes,
}

/// Whether a query belongs to Connect: it contains the protocol version.
pub(crate) fn is_call(query: &[u8]) -> bool {
    pairs(query).any(|(name, value)| name == b"connect" && value == b"v1")
}

/// Parses a query.
///
/// # Errors
///
/// If the query is not a valid call.
pub(crate) fn read(query: &[u8]) -> Result<Query, Status> {
    let (mut encoding, mut message, mut base64, mut compression) = (None, None, false, Compression::None);
    for (name, value) in pairs(query) {
        match name {
            b"encoding" => encoding = Some(value),
            b"message" => message = Some(value),
            b"base64" => base64 = value == b"1",
            b"compression" => compression = coding::read(value).ok_or_else(|| unknown_compression(value))?,
            _ => {}
        }
    }
    let encoding = encoding.ok_or_else(|| Status::invalid_argument("the query has no encoding"))?;
    let message = message.ok_or_else(|| Status::invalid_argument("the query has no message"))?;
    let format = kind::format(encoding)
        .ok_or_else(|| Status::invalid_argument("the encoding in the query is not supported"))?;
    let message = unescape(message)
        .ok_or_else(|| Status::invalid_argument("the message in the query is not percent-encoded"))?;
    let message = match base64 {
        false => message,
        true => decode(&message)
            .ok_or_else(|| Status::invalid_argument("the message in the query is not base64"))?,
    };
    Ok(Query { format, compression, message: message.into() })
}

/// Writes a query, with its parameters in the order that the specification recommends.
pub(crate) fn write(format: Format, compression: Compression, message: &[u8]) -> String {
    let mut query = "connect=v1&base64=1".to_owned();
    if let Some(name) = coding::name(compression).filter(|_| compression != Compression::None) {
        query.push_str("&compression=");
        query.push_str(&String::from_utf8_lossy(name));
    }
    query.push_str("&encoding=");
    query.push_str(&String::from_utf8_lossy(kind::name(format)));
    query.push_str("&message=");
    URL_SAFE.encode_string(message, &mut query);
    query
}

fn pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|byte| *byte == b'&').map(|pair| match pair.iter().position(|byte| *byte == b'=') {
        Some(at) => (pair.get(..at).unwrap_or_default(), pair.get(at + 1..).unwrap_or_default()),
        None => (pair, &pair[pair.len()..]),
    })
}

#[cold]
pub(crate) fn unknown_compression(name: &[u8]) -> Status {
    let (name, known) = (String::from_utf8_lossy(name), String::from_utf8_lossy(coding::ACCEPTED));
    Status::unimplemented(format!("the compression {name:?} is not supported: {known} are"))
}

/// Decodes the URL alphabet, padded or not, and the standard alphabet, which some encoders use.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let usual: Vec<u8> = text
        .iter()
        .map(|byte| match byte {
            b'+' | b' ' => b'-',
            b'/' => b'_',
            other => *other,
        })
        .collect();
    URL_SAFE.decode(usual).ok()
}

const URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

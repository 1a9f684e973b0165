//! The last message of a stream: result and trailers of the call ("EndStreamResponse").

use polyrpc_core::{Code, Metadata, ReceivedMetadata, Status};
use serde_json::{Map, Value};

use super::status;
use crate::grpc::metadata;

/// Flag of the last message: uncompressed, and compressed.
pub(crate) const END: u8 = 0b10;
pub(crate) const COMPRESSED_END: u8 = 0b11;

/// Returns the prefix of a last message of this length.
pub(crate) fn end_prefix(length: usize) -> [u8; crate::grpc::frame::PREFIX] {
    let [_, a, b, c, d] = crate::grpc::frame::prefix(false, length);
    [END, a, b, c, d]
}

/// Encodes the last message.
pub(crate) fn end(failure: Option<&Status>, trailers: &Metadata) -> Vec<u8> {
    if failure.is_none() && trailers.is_empty() {
        return b"{}".to_vec();
    }
    let mut end = Map::new();
    if let Some(failure) = failure {
        end.insert("error".to_owned(), status::write(failure));
    }
    let mut fields = Map::new();
    metadata::write(trailers, |name, value| {
        let text = String::from_utf8_lossy(value).into_owned();
        let values = fields.entry(String::from_utf8_lossy(name)).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(values) = values {
            values.push(text.into());
        }
    });
    if !fields.is_empty() {
        end.insert("metadata".to_owned(), fields.into());
    }
    Value::Object(end).to_string().into_bytes()
}

/// Decodes result and trailers of the call; `None` if the message is malformed.
pub(crate) fn read_end(text: &[u8]) -> Option<(Result<(), Status>, Metadata)> {
    let end: Map<String, Value> = serde_json::from_slice(text).ok()?;
    let mut trailers = ReceivedMetadata::default();
    if let Some(fields) = end.get("metadata").filter(|fields| !fields.is_null()) {
        for (name, values) in fields.as_object()? {
            let name = name.to_ascii_lowercase();
            for value in values.as_array()? {
                metadata::read(&name, value.as_str()?.as_bytes(), &mut trailers);
            }
        }
    }
    let result = match end.get("error") {
        None | Some(Value::Null) => Ok(()),
        Some(error) => Err(status::read(error, Code::Unknown)?),
    };
    Some((result, trailers.into_metadata()))
}

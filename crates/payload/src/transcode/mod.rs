//! Schema-driven conversion between formats.
//!
//! Typed messages are decoded from protobuf's binary format only; a message in any other format is converted to it and
//! from it here. There are no message objects in between: input is converted directly to output.
//!
//! * `print` traverses a message in the binary format and passes its content to a `Sink`; there is a sink for JSON (in
//!   three dialects), one for the text format, one for MessagePack, one for gob.
//! * `parse` reads tokens from a `Source` (JSON or MessagePack) and writes the binary format. The text format, whose
//!   values are ambiguous without the schema, has its own parser, and so has gob, whose types must match before values
//!   are read.

use std::fmt;

use polyrpc_core::Format;

use super::gob::Error as GobError;
use super::schema::{Message, MissingField};

mod binary;
mod gob;
mod json;
mod msgpack;
mod number;
mod parse;
mod print;
mod text;

/// Converts a message in any format to protobuf's binary format. Input in the binary format is only checked for
/// required fields.
///
/// # Errors
///
/// [`Error::Invalid`] if the bytes are malformed or do not match the message, [`Error::Missing`] if a required field is
/// missing.
pub fn to_protobuf(message: &Message, format: Format, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    parse(message, format, bytes).map(|parsed| parsed.protobuf)
}

/// Does the same, and counts skipped values.
///
/// # Errors
///
/// See [`to_protobuf`].
pub fn parse(message: &Message, format: Format, bytes: &[u8]) -> Result<ParsedMessage, Error> {
    let whole = |protobuf| ParsedMessage { protobuf, unknown: 0 };
    let parsed = match format {
        Format::Protobuf => whole(bytes.to_vec()),
        Format::Json(dialect) => json::parse(message, dialect, bytes)?,
        Format::ProtoText => whole(text::parse(message, bytes)?),
        Format::MessagePack | Format::MessagePackArray => msgpack::parse(message, bytes)?,
        Format::Gob => whole(gob::parse(message, bytes)?),
        Format::RestRpc | Format::StructPack | Format::FlatBuffers | Format::Raw | Format::Other(_) => {
            return Err(Error::Unsupported(format));
        }
    };
    message.check_required(&parsed.protobuf)?;
    Ok(parsed)
}

/// A parsed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedMessage {
    /// The message in protobuf's binary format.
    pub protobuf: Vec<u8>,
    /// Number of JSON or MessagePack values that were skipped, since the message has no field with their name, or their
    /// enum has no such value. The sender may use a later version of the schema.
    pub unknown: u64,
}

/// Converts a message in protobuf's binary format to any format.
///
/// # Errors
///
/// [`Error::Invalid`] if the bytes are malformed or cannot be expressed in the format, [`Error::Missing`] if a required
/// field is missing.
pub fn from_protobuf(message: &Message, format: Format, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    from_protobuf_within(message, format, bytes, usize::MAX)
}

/// Does the same, but stops soon after the result is longer than `max` bytes.
///
/// # Errors
///
/// See [`from_protobuf`]; also [`Error::TooLong`].
pub fn from_protobuf_within(
    message: &Message,
    format: Format,
    bytes: &[u8],
    max: usize,
) -> Result<Vec<u8>, Error> {
    message.check_required(bytes)?;
    match format {
        Format::Protobuf => Ok(bytes.to_vec()),
        Format::Json(dialect) => json::print(message, dialect, bytes, max),
        Format::ProtoText => text::print(message, bytes, max),
        Format::MessagePack | Format::MessagePackArray => msgpack::print(message, bytes, max),
        Format::Gob => gob::print(message, bytes, max),
        Format::RestRpc | Format::StructPack | Format::FlatBuffers | Format::Raw | Format::Other(_) => {
            Err(Error::Unsupported(format))
        }
    }
}

/// Why a message cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The format is independent of schemas.
    Unsupported(Format),
    /// A required field is missing.
    Missing(MissingField),
    /// The result would be longer than this many bytes.
    TooLong(usize),
    /// The bytes are malformed, or do not match the message. Malformed JSON is reported with brpc's text.
    Invalid(Box<str>),
    /// A value does not match its field.
    Value(Box<FieldMismatch>),
}

/// A value that does not match its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMismatch {
    /// Path of the value, in names of the `.proto`: `user.tags[2]`, `scores["ann"]`; empty for the message itself.
    pub path: String,
    /// Why it does not match: `expected int64, found string`.
    pub reason: String,
}

impl Error {
    #[cold]
    fn new(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into().into_boxed_str())
    }

    /// Creates the error of a value that does not match, at its own position.
    #[cold]
    fn mismatch(reason: impl Into<String>) -> Self {
        Self::Value(Box::new(FieldMismatch { path: String::new(), reason: reason.into() }))
    }

    /// Prepends a step to the path of the value.
    #[cold]
    fn within(self, step: impl FnOnce() -> String) -> Self {
        let Self::Value(mut mismatch_error) = self else { return self };
        let path = &mismatch_error.path;
        let between = if path.is_empty() || path.starts_with('[') { "" } else { "." };
        mismatch_error.path = format!("{}{between}{path}", step());
        Self::Value(mismatch_error)
    }

    #[cold]
    fn within_field(self, name: &str) -> Self {
        self.within(|| name.to_owned())
    }

    #[cold]
    fn within_item(self, index: usize) -> Self {
        self.within(|| format!("[{index}]"))
    }

    /// brpc's own text and limit (brpc `json2pb/json_to_pb.cpp`, `json2pb_max_recursion_depth`).
    #[cold]
    fn too_deep() -> Self {
        Self::new("Exceeded maximum recursion depth")
    }

    #[cold]
    fn not_protobuf() -> Self {
        Self::new("not a message in protobuf's binary format")
    }
}

impl From<MissingField> for Error {
    fn from(missing: MissingField) -> Self {
        Self::Missing(missing)
    }
}

impl From<GobError> for Error {
    fn from(error: GobError) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(format) => {
                write!(f, "no message can be read from or written in {}", format.as_str())
            }
            Self::Missing(missing) => missing.fmt(f),
            Self::TooLong(max) => write!(f, "the message would be longer than {max} bytes"),
            Self::Invalid(reason) => f.write_str(reason),
            Self::Value(mismatch_error) if mismatch_error.path.is_empty() => {
                f.write_str(&mismatch_error.reason)
            }
            Self::Value(mismatch_error) => write!(f, "{}: {}", mismatch_error.path, mismatch_error.reason),
        }
    }
}

impl std::error::Error for Error {}

/// Nesting limit of messages in every format.
const MAX_DEPTH: usize = 100;

#[cfg(test)]
mod tests;

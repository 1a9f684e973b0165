//! From one format to another, led by a schema.
//!
//! Typed messages know protobuf's binary format alone; a message in any other format is read into it and
//! written from it here. There are no message objects in between: what is read goes straight into the
//! output, what is written is taken straight from the input.
//!
//! * `print` walks a message in the binary format and tells a `Sink` what it finds; there is a sink for
//!   JSON (in three dialects), one for the text format, one for MessagePack, one for gob.
//! * `parse` pulls tokens from a `Source` (JSON or MessagePack) and writes the binary format. The text
//!   format, whose values mean nothing without the schema, has a parser of its own, and so has gob, whose types
//!   have to fit before there is a value.

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

/// Reads a message in any format and writes it in protobuf's binary format. Bytes that are in it already are
/// checked for required fields alone.
///
/// # Errors
///
/// [`Error::Invalid`] if the bytes are not of that format or do not fit the message, [`Error::Missing`] if a
/// required field is not among them.
pub fn to_protobuf(message: &Message, format: Format, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    parse(message, format, bytes).map(|parsed| parsed.protobuf)
}

/// The same, which tells how much was passed over.
///
/// # Errors
///
/// As [`to_protobuf`].
pub fn parse(message: &Message, format: Format, bytes: &[u8]) -> Result<Parsed, Error> {
    let whole = |protobuf| Parsed { protobuf, unknown: 0 };
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

/// A message that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// It, in protobuf's binary format.
    pub protobuf: Vec<u8>,
    /// How many values of JSON or MessagePack were passed over, since the message has no field of their name, or their
    /// enum no such value. Whoever sent them may know a later version of the schema.
    pub unknown: u64,
}

/// Writes a message, given in protobuf's binary format, in any format.
///
/// # Errors
///
/// [`Error::Invalid`] if the bytes are not protobuf or hold what the format cannot express,
/// [`Error::Missing`] if a required field is not among them.
pub fn from_protobuf(message: &Message, format: Format, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    message.check_required(bytes)?;
    match format {
        Format::Protobuf => Ok(bytes.to_vec()),
        Format::Json(dialect) => json::print(message, dialect, bytes),
        Format::ProtoText => text::print(message, bytes),
        Format::MessagePack | Format::MessagePackArray => msgpack::print(message, bytes),
        Format::Gob => gob::print(message, bytes),
        Format::RestRpc | Format::StructPack | Format::FlatBuffers | Format::Raw | Format::Other(_) => {
            Err(Error::Unsupported(format))
        }
    }
}

/// Why a message could not be brought from one format to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The format is not one that a schema says anything about.
    Unsupported(Format),
    /// A required field is not there.
    Missing(MissingField),
    /// The bytes are not of their format, or do not fit the message. What is not JSON is told in brpc's words.
    Invalid(Box<str>),
    /// A value does not fit its field.
    Value(Box<FieldMismatch>),
}

/// A value that does not fit its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMismatch {
    /// Where it is, by the names of the `.proto`: `user.tags[2]`, `scores["ann"]`; empty for the message itself.
    pub path: String,
    /// Why it does not fit: `expected int64, found string`.
    pub reason: String,
}

impl Error {
    #[cold]
    fn new(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into().into_boxed_str())
    }

    /// A value that does not fit, where it is.
    #[cold]
    fn unfit(reason: impl Into<String>) -> Self {
        Self::Value(Box::new(FieldMismatch { path: String::new(), reason: reason.into() }))
    }

    /// Puts a step before the path to the value that does not fit.
    #[cold]
    fn within(self, step: impl FnOnce() -> String) -> Self {
        let Self::Value(mut misfit) = self else { return self };
        let path = &misfit.path;
        let between = if path.is_empty() || path.starts_with('[') { "" } else { "." };
        misfit.path = format!("{}{between}{path}", step());
        Self::Value(misfit)
    }

    #[cold]
    fn within_field(self, name: &str) -> Self {
        self.within(|| name.to_owned())
    }

    #[cold]
    fn within_item(self, index: usize) -> Self {
        self.within(|| format!("[{index}]"))
    }

    /// brpc's own words and limit (brpc `json2pb/json_to_pb.cpp`, `json2pb_max_recursion_depth`).
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
            Self::Invalid(reason) => f.write_str(reason),
            Self::Value(misfit) if misfit.path.is_empty() => f.write_str(&misfit.reason),
            Self::Value(misfit) => write!(f, "{}: {}", misfit.path, misfit.reason),
        }
    }
}

impl std::error::Error for Error {}

/// How deep messages may nest, in every format.
const MAX_DEPTH: usize = 100;

#[cfg(test)]
mod tests;

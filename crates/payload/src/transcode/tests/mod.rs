use polyrpc_core::Json;

use super::*;
use crate::schema::Pool;
use crate::schema::testing::{compile, pool};

mod brpc;
mod go;
mod gob;
mod hostile;
mod proto3;
mod reference;
mod text_format;
mod values;

fn to(message: &Message, format: Format, text: &str) -> Result<Vec<u8>, Error> {
    to_protobuf(message, format, text.as_bytes())
}

fn from(message: &Message, format: Format, bytes: &[u8]) -> Result<String, Error> {
    from_protobuf(message, format, bytes).map(|bytes| String::from_utf8(bytes).unwrap())
}

/// Creates a message from the text format.
fn message(of: &Message, text: &str) -> Vec<u8> {
    to(of, Format::ProtoText, text).unwrap()
}

/// Parses text in `format` and prints it again.
fn again(of: &Message, format: Format, text: &str) -> Result<String, Error> {
    from(of, format, &to(of, format, text)?)
}

/// Every kind of field, in every form of declaration.
const RICH: &str = include_str!("rich.proto");

//! JSON, in the dialects of three peers.

use polyrpc_core::Json;

use crate::schema::Message;

use super::parse::{self, JsonDialect};
use super::{Error, ParsedMessage, print};

mod sink;
mod source;
mod time;
pub(super) mod well_known;

pub(super) fn parse(message: &Message, dialect: Json, bytes: &[u8]) -> Result<ParsedMessage, Error> {
    let dialect = match dialect {
        Json::BrpcLenient => JsonDialect::Lenient,
        Json::Brpc => JsonDialect::Brpc,
        Json::Proto3 => JsonDialect::Proto3,
        Json::Go => JsonDialect::Go,
    };
    let source = source::Source::new(bytes, message.name())?;
    parse::parse(message, source, dialect, bytes.len())
}

pub(super) fn print(message: &Message, dialect: Json, bytes: &[u8], max: usize) -> Result<Vec<u8>, Error> {
    let sink = sink::Sink::new(dialect, bytes.len().saturating_mul(2));
    print::print(message, bytes, sink, max).map(sink::Sink::into_bytes)
}

/// Prints a message; also returns how many records that took.
#[cfg(test)]
pub(super) fn print_counting(
    message: &Message,
    dialect: Json,
    bytes: &[u8],
) -> (Result<Vec<u8>, Error>, usize) {
    let (printed, records) = print::print_counting(message, bytes, sink::Sink::new(dialect, 0));
    (printed.map(sink::Sink::into_bytes), records)
}

//! Protobuf's text format, as C++ protobuf writes and reads it.

mod parser;
mod sink;

pub(super) use self::parser::parse;
pub(super) use self::sink::print;

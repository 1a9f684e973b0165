//! Protobuf's text format, as written and parsed by C++ protobuf.

mod parser;
mod sink;

pub(super) use self::parser::parse;
pub(super) use self::sink::print;

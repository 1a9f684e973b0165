//! Protobuf's text format, as C++ protobuf writes and reads it.

mod parser;
mod sink;

pub(super) use parser::parse;
pub(super) use sink::print;

//! FlatBuffers' schema language, and Rust code for it.
//!
//! A `.fbs` is processed in this order: `lex` splits it into tokens, `parse` parses declarations, `load` adds the
//! included files, `resolve` resolves names to types and computes layouts, which yields a [`Schema`]. `generate`
//! produces the code. The language is defined by flatbuffers' `docs/source/grammar.md` and its `idl_parser.cpp`.

mod lex;

mod ast;
mod parse;

mod load;

mod resolve;
mod schema;

pub(crate) mod generate;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::Error;

pub use schema::{
    Default, Enum, EnumValue, Field, File, Hash, Member, Method, Scalar, Schema, Service, Struct,
    StructField, Table, Type, Union,
};

/// Reads `.fbs` files and all that they include. Includes are looked up next to them and under `includes`.
///
/// # Errors
///
/// If a file is missing or invalid; the error contains the position.
pub fn read(files: &[PathBuf], includes: &[PathBuf]) -> Result<Schema, Error> {
    resolve::resolve(load::load(files, includes)?)
}

/// Reads a `.fbs` from a text without includes.
///
/// # Errors
///
/// If it is invalid; the error contains the position.
pub fn read_text(name: &str, text: &str) -> Result<Schema, Error> {
    resolve::resolve(load::load_text(name, text)?)
}

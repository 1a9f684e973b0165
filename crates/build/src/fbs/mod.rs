//! FlatBuffers' schema language, and Rust for what it declares.
//!
//! A `.fbs` goes through here in this order: `lex` cuts it into tokens, `parse` reads declarations, `load` adds
//! the files that it includes, `resolve` links names to types and lays everything out: a [`Schema`]. From that
//! `generate` writes the code. The language is that of flatbuffers' `docs/source/grammar.md` and of its
//! `idl_parser.cpp`.

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

/// Reads `.fbs` files and all that they include, which is looked for beside them and under `includes`.
///
/// # Errors
///
/// When a file is missing, or wrong; the error says where.
pub fn read(files: &[PathBuf], includes: &[PathBuf]) -> Result<Schema, Error> {
    resolve::resolve(load::load(files, includes)?)
}

/// Reads a `.fbs` that is at hand as text and includes nothing.
///
/// # Errors
///
/// When it is wrong; the error says where.
pub fn read_text(name: &str, text: &str) -> Result<Schema, Error> {
    resolve::resolve(load::load_text(name, text)?)
}

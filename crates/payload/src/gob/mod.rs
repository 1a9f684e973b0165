//! Gob, the encoding of Go's `encoding/gob`, used by net/rpc.
//!
//! A gob stream is self-describing. The definition of a type precedes its first value, once in each direction of a
//! connection; a value therefore has no meaning without the state of its stream:
//!
//! * a [`Reader`] is that state for received values, and returns each as a [`Value`], which is independent of it;
//! * a [`Writer`] is that state for sent values;
//! * [`to_vec`] and [`from_slice`] write and read a stream of a single value, which is the body of a
//!   [`Call`](polyrpc_core::Call) in [`Format::Gob`](polyrpc_core::Format::Gob).
//!
//! The folder's `README.md` describes the mapping between Rust's types and Go's.
//!
//! ```
//! use polyrpc_payload::gob;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, PartialEq, Debug)]
//! #[serde(rename_all = "PascalCase")]
//! struct Args {
//!     a: i64,
//!     b: i64,
//! }
//!
//! let bytes = gob::to_vec(&Args { a: 7, b: 8 })?;
//! assert_eq!(gob::from_slice::<Args>(&bytes)?, Args { a: 7, b: 8 });
//! # Ok::<(), gob::Error>(())
//! ```

mod complex;
pub(super) mod decode;
mod dictionary;
mod encode;
mod error;
mod json;
pub(super) mod number;
mod reader;
mod schema_of_type;
mod schema_of_value;
mod self_encoding;
mod time;
mod type_description;
pub(super) mod types;
mod value_walk;
mod writer;
mod zero;

#[cfg(test)]
mod tests;

use bytes::BytesMut;
use std::panic::catch_unwind;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::complex::Complex;
pub use self::error::Error;
pub use self::json::{from_json, to_json};
pub use self::reader::{Reader, Value};
pub use self::self_encoding::{BigInt, GoType, Method, NetipAddr, SelfEncoded, Url, Uuid};
pub use self::time::Time;
pub use self::writer::Writer;

use self::decode::Decoder;
use self::number::Cursor;
use self::types::Table;

/// Stream of a struct without name and fields, which Go writes when there is no content.
pub const EMPTY_STRUCT: &[u8] = b"\x0a\xff\x81\x03\x01\x02\xff\x82\x00\x00\x00\x03\xff\x82\x00";

/// Limits of a reader. Every length and count is checked against one of these, or the available bytes, before memory is
/// allocated for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message, and of a value that spans several. 64 MiB.
    pub message: usize,
    /// Types that one direction of a stream may define. 4096.
    pub types: usize,
    /// Bytes of all these definitions. 256 KiB.
    pub definitions: usize,
    /// Nesting depth of values. 128.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        (&polyrpc_core::Limits::default()).into()
    }
}

impl From<&polyrpc_core::Limits> for Limits {
    fn from(limits: &polyrpc_core::Limits) -> Self {
        Self { message: limits.message, types: 4096, definitions: 256 << 10, depth: 128 }
    }
}

/// Encodes a value as a separate gob stream: the definitions of its types, then the value.
///
/// # Errors
///
/// If Go has no equivalent: a type that cannot be described, a list with a missing element.
pub fn to_vec<T>(value: &T) -> Result<Vec<u8>, Error>
where
    T: Serialize + DeserializeOwned + 'static,
{
    let description = schema_of_type::description::<T>()?;
    let mut out = Vec::with_capacity(description.definitions().len() + 64);
    out.extend_from_slice(description.definitions());
    encode::message(value, &description, description.id(), &mut out)?;
    Ok(out)
}

/// Checks whether values of a type can be encoded, which [`to_vec`] detects with the first of them. If a type cannot be
/// deserialized from sample values, the check passes until there is a real value.
///
/// # Errors
///
/// The construct without an equivalent in Go, with the name of the type: a struct with `#[serde(flatten)]`, which serde
/// treats as a map; integers of 128 bits; a tuple of more than 16.
///
/// ```
/// use polyrpc_payload::gob;
///
/// assert!(gob::check::<Vec<i64>>().is_ok());
/// assert!(gob::check::<i128>().is_err());
/// ```
pub fn check<T: DeserializeOwned + 'static>() -> Result<(), Error> {
    // Deserialization runs code of the type's author, which may panic: that is left to actual deserialization.
    match catch_unwind(schema_of_type::description::<T>)
        .unwrap_or_else(|_| Err(Error::new("it panics when it is read")))
    {
        Err(error) if error.is_of_type() => Err(error),
        _ => Ok(()),
    }
}

/// Encodes a value whose type cannot be deserialized, and therefore cannot be probed: it is described as far as the
/// value shows it. [`to_vec`] describes it completely, and is faster.
///
/// # Errors
///
/// See [`to_vec`].
pub fn to_vec_plain<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let description = schema_of_value::infer(value)?;
    let mut out = description.definitions().to_vec();
    encode::message(value, &description, description.id(), &mut out)?;
    Ok(out)
}

/// Decodes a gob stream of a single value.
///
/// # Errors
///
/// If the bytes are not such a stream, or the value is not compatible with `T` by Go's rules.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let limits = Limits { message: usize::MAX - 16, ..Limits::default() };
    let split = Split::parse(bytes, &limits)?;
    if split.is_plain() {
        let (of, content) = split.value()?;
        return decode::value(split.definitions, &split.table, of, content);
    }
    read_sole(bytes, limits)?.decode()
}

/// Decodes the arguments of a function, a gob stream of one value: a struct, an array or a slice with a member for
/// each.
///
/// When decoding into a struct, Go and [`from_slice`] skip fields that the receiver does not have. A tuple is decoded
/// by position, so that a different number of members means that they were intended for another function.
///
/// # Errors
///
/// See [`from_slice`]; also [a count error](Error::is_of_count) if the value does not have `count` members.
///
/// ```
/// use polyrpc_payload::gob;
///
/// let bytes = gob::to_vec(&(1, "x".to_owned(), true)).unwrap();
/// let error = gob::arguments_from_slice::<(i64, String)>(&bytes, 2).unwrap_err();
/// assert_eq!(error.to_string(), "wrong number of arguments: expected 2, found 3");
/// ```
pub fn arguments_from_slice<T: DeserializeOwned>(bytes: &[u8], count: usize) -> Result<T, Error> {
    read(bytes, |decoder, of| decode::arguments(decoder, of, count))
}

/// Decodes a gob stream of a single value with `read`, which gets the value's type.
pub(super) fn read<R, E: From<Error>>(
    bytes: &[u8],
    read: impl FnOnce(Decoder<'_, '_>, i32) -> Result<R, E>,
) -> Result<R, E> {
    let limits = Limits { message: usize::MAX - 16, ..Limits::default() };
    let whole;
    let mut split = Split::parse(bytes, &limits)?;
    if !split.is_plain() {
        whole = read_sole(bytes, limits.clone())?.into_bytes();
        split = Split::parse(&whole, &limits)?;
    }
    let (of, content) = split.value()?;
    let mut decoder = Decoder::new(split.definitions, &split.table, content);
    decoder.top(of)?;
    read(decoder, of)
}

/// Returns the only value of a stream, in one piece.
fn read_sole(bytes: &[u8], limits: Limits) -> Result<Value, Error> {
    let (mut inbox, mut reader) = (BytesMut::from(bytes), Reader::new(limits));
    let value = reader.next(&mut inbox)?.ok_or_else(Error::truncated)?;
    if inbox.is_empty() { Ok(value) } else { Err(Error::new("bytes follow the value")) }
}

/// A stream of a single value: definitions, then the messages of the value.
struct Split<'a> {
    /// The messages that define types.
    definitions: &'a [u8],
    table: Table,
    /// The messages after them.
    rest: &'a [u8],
}

impl<'a> Split<'a> {
    fn parse(bytes: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let (mut table, mut at) = (Table::default(), 0);
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(Self { definitions: bytes, table, rest });
            }
            let mut cursor = Cursor::new(rest);
            let message = cursor.bytes()?;
            let end = bytes.len() - cursor.len();
            let mut content = Cursor::new(message);
            if content.ahead().id()? >= 0 {
                return Ok(Self { definitions: bytes.get(..at).unwrap_or_default(), table, rest });
            }
            if end > limits.definitions {
                return Err(dictionary::too_long(limits));
            }
            let id = dictionary::read_defined_id(&mut content)?;
            table.define(id, bytes.get(..end).unwrap_or_default(), at, &mut content, limits)?;
            if !content.is_empty() {
                return Err(Error::new("extra data in buffer"));
            }
            at = end;
        }
    }

    /// Whether the value is one message without type definitions inside.
    fn is_plain(&self) -> bool {
        let mut cursor = Cursor::new(self.rest);
        let message = cursor.bytes().map(Cursor::new);
        let interface = message.and_then(|mut message| message.id()) == Ok(types::id::INTERFACE);
        !self.table.is_dynamic() && !interface && cursor.is_empty()
    }

    /// Returns the value's type, and the value.
    fn value(&self) -> Result<(i32, Cursor<'a>), Error> {
        let mut message = Cursor::new(Cursor::new(self.rest).bytes()?);
        Ok((message.id()?, message))
    }
}

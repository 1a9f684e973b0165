//! How rest_rpc writes arguments and results.
//!
//! Up to v0.20 in MessagePack. Since v0.21 a single basic value (a number, a truth value, a text) is written as
//! text, and anything else in struct_pack, arguments as a `std::tuple` (rest_rpc `rpc_router.hpp`,
//! `rest_rpc_client.hpp`). Which it is, only the types say.

mod publish;
mod text;
mod value_kind;

use bytes::Bytes;
use polyrpc_core::{Format, Status};
use polyrpc_payload::msgpack::{Reader, Token, Writer};
use polyrpc_payload::struct_pack;
use polyrpc_wire::rest_rpc::wrong_count;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Body;
use super::buffer::Buffer;
use super::lenient_message_pack::{self, Lengths};
use super::value::{encode, encode_typed, unreadable, unwritable};

pub(crate) use publish::{publish, publish_coded, published, unpack};

use text::{ReadOutcome, WriteOutcome};
use value_kind::ValueKind;

/// Writes the arguments of a call: the members of a tuple, or a single one that stands alone.
pub(crate) fn encode_arguments(
    arguments: &(impl Serialize + ?Sized),
    format: Format,
) -> Result<Body, Status> {
    let shape = ValueKind::of_value(arguments);
    let (positional, bytes) = match (format, shape) {
        (Format::RestRpc, _) => (true, write_arguments(arguments, shape)?),
        (_, ValueKind::Nothing) => (true, Bytes::from_static(EMPTY_LIST)),
        (_, ValueKind::List) => (true, encode(arguments, format)?),
        (Format::MessagePackArray, ValueKind::Text) => (false, pack_text(arguments)?),
        (_, ValueKind::Sole | ValueKind::Text) => (false, encode(arguments, format)?),
    };
    Ok(Body { positional, ..Body::new(format, bytes) })
}

/// The same of a type that is known from outside, so that nothing in the value need tell it.
pub(super) fn encode_request<T>(request: &T, format: Format) -> Result<Body, Status>
where
    T: Serialize + DeserializeOwned + 'static,
{
    if format != Format::RestRpc {
        return encode_arguments(request, format);
    }
    let bytes = match text::write(request, ValueKind::of_value(request) == ValueKind::List) {
        WriteOutcome::Text(text) => text,
        WriteOutcome::Wrong(error) => return Err(unwritable(&error)),
        WriteOutcome::NotBasic => {
            struct_pack::arguments_to_vec(request).map_err(|error| unwritable(&error))?.into()
        }
    };
    Ok(Body { positional: true, ..Body::new(format, bytes) })
}

fn write_arguments(arguments: &(impl Serialize + ?Sized), shape: ValueKind) -> Result<Bytes, Status> {
    match text::write(arguments, shape == ValueKind::List) {
        WriteOutcome::Text(text) => Ok(text),
        WriteOutcome::Wrong(error) => Err(unwritable(&error)),
        WriteOutcome::NotBasic if shape == ValueKind::List => encode(arguments, Format::StructPack),
        WriteOutcome::NotBasic => encode(&(arguments,), Format::StructPack),
    }
}

/// Reads the arguments of a call as a tuple.
pub(super) fn read_arguments<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Status> {
    match text::read(bytes, true) {
        ReadOutcome::Value(arguments) => Ok(arguments),
        ReadOutcome::Wrong(error) => Err(unreadable(&error)),
        ReadOutcome::NotBasic => struct_pack::from_slice(bytes).map_err(|error| unreadable(&error)),
    }
}

/// Writes a single argument or a result.
pub(super) fn write_value<T>(value: &T) -> Result<Bytes, Status>
where
    T: Serialize + DeserializeOwned + 'static,
{
    match text::write(value, false) {
        WriteOutcome::Text(text) => Ok(text),
        WriteOutcome::Wrong(error) => Err(unwritable(&error)),
        WriteOutcome::NotBasic => encode_typed(value),
    }
}

/// Reads a result.
pub(super) fn read_value<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Status> {
    match text::read(bytes, false) {
        ReadOutcome::Value(value) => Ok(value),
        ReadOutcome::Wrong(error) => Err(unreadable(&error)),
        ReadOutcome::NotBasic => struct_pack::from_slice(bytes).map_err(|error| unreadable(&error)),
    }
}

/// Writes a result up to v0.20: in MessagePack, and not at all where there is none.
pub(super) fn write_packed(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Status> {
    match ValueKind::of_value(value) {
        ValueKind::Nothing => Ok(Bytes::new()),
        ValueKind::Text => pack_text(value),
        ValueKind::List | ValueKind::Sole => encode(value, Format::MessagePackArray),
    }
}

/// Writes bytes as a text in MessagePack: serde would have them be `bin`.
fn pack_text(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Status> {
    match text::write(value, false) {
        WriteOutcome::Text(text) => {
            let mut head = Vec::with_capacity(LONGEST_HEAD);
            Writer::new(&mut head).str_head(text.len());
            Ok(Buffer::copy(&[&head, &text]))
        }
        WriteOutcome::Wrong(error) => Err(unwritable(&error)),
        WriteOutcome::NotBasic => encode(value, Format::MessagePackArray),
    }
}

/// Reads the arguments of a function up to v0.20, once it is known that they are not what is wanted: there must be as many
/// as the function has, but their members are read as the peer reads them. `None` if these are none, or no `T`.
///
/// # Errors
///
/// If there are more or fewer.
#[cold]
pub(super) fn read_function_list<T: DeserializeOwned>(
    body: &Body,
    count: usize,
) -> Option<Result<T, Status>> {
    let Ok(Token::Array(found)) = Reader::new(&body.bytes).next() else { return None };
    let is_whole = Reader::new(&body.bytes).skip().is_ok();
    match found as usize {
        found if is_whole && is_list(body) && found != count => Some(Err(wrong_count(count, found))),
        _ => read_list(body).map(Ok),
    }
}

/// Reads the message of a method from the arguments of a call up to v0.20 as the peer does, once it is known that they are
/// not what is wanted: members that are missing are zero or empty, further ones are not looked at.
#[cold]
pub(super) fn read_list<T: DeserializeOwned>(body: &Body) -> Option<T> {
    match is_list(body) {
        true => lenient_message_pack::from_slice(&body.bytes, Lengths::Any).ok(),
        false => None,
    }
}

/// Whether these are the arguments of a call up to v0.20.
pub(super) fn is_list(body: &Body) -> bool {
    body.positional && matches!(body.format, Format::MessagePack | Format::MessagePackArray)
}

/// How long the head of a text in MessagePack may be.
const LONGEST_HEAD: usize = 5;

/// An empty list in MessagePack.
pub(super) const EMPTY_LIST: &[u8] = &[0x90];

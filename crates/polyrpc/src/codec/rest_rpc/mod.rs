//! Encoding of rest_rpc's arguments and results.
//!
//! Up to v0.20 they are MessagePack. Since v0.21 a single basic value (a number, a boolean, a text) is encoded as text,
//! and anything else in struct_pack, with arguments as a `std::tuple` (rest_rpc `rpc_router.hpp`,
//! `rest_rpc_client.hpp`). Only the types determine which one applies.

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

pub(crate) use publish::{decode_published, publish, publish_coded, unpack};

use text::{ReadOutcome, WriteOutcome};
use value_kind::ValueKind;

/// Encodes the arguments of a call: the members of a tuple, or a single argument.
pub(crate) fn encode_arguments(
    arguments: &(impl Serialize + ?Sized),
    format: Format,
) -> Result<Body, Status> {
    let shape = ValueKind::from_value(arguments);
    let (positional, bytes) = match (format, shape) {
        (Format::RestRpc, _) => (true, write_arguments(arguments, shape)?),
        (_, ValueKind::Nothing) => (true, Bytes::from_static(EMPTY_LIST)),
        (_, ValueKind::List) => (true, encode(arguments, format)?),
        (Format::MessagePackArray, ValueKind::Text) => (false, pack_text(arguments)?),
        (_, ValueKind::Single | ValueKind::Text) => (false, encode(arguments, format)?),
    };
    Ok(Body { positional, ..Body::new(format, bytes) })
}

/// Encodes arguments whose type is known statically, so that the value need not describe it.
pub(super) fn encode_request<T>(request: &T, format: Format) -> Result<Body, Status>
where
    T: Serialize + DeserializeOwned + 'static,
{
    if format != Format::RestRpc {
        return encode_arguments(request, format);
    }
    let bytes = match text::write(request, ValueKind::from_value(request) == ValueKind::List) {
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

/// Decodes the arguments of a call as a tuple.
pub(super) fn read_arguments<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Status> {
    match text::read(bytes, true) {
        ReadOutcome::Value(arguments) => Ok(arguments),
        ReadOutcome::Wrong(error) => Err(unreadable(&error)),
        ReadOutcome::NotBasic => struct_pack::from_slice(bytes).map_err(|error| unreadable(&error)),
    }
}

/// Encodes a single argument or a result.
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

/// Decodes a result.
pub(super) fn read_value<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Status> {
    match text::read(bytes, false) {
        ReadOutcome::Value(value) => Ok(value),
        ReadOutcome::Wrong(error) => Err(unreadable(&error)),
        ReadOutcome::NotBasic => struct_pack::from_slice(bytes).map_err(|error| unreadable(&error)),
    }
}

/// Encodes a result for versions up to v0.20: MessagePack, and nothing if there is no result.
pub(super) fn write_packed(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Status> {
    match ValueKind::from_value(value) {
        ValueKind::Nothing => Ok(Bytes::new()),
        ValueKind::Text => pack_text(value),
        ValueKind::List | ValueKind::Single => encode(value, Format::MessagePackArray),
    }
}

/// Encodes bytes as a text in MessagePack; serde would encode them as `bin`.
fn pack_text(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Status> {
    match text::write(value, false) {
        WriteOutcome::Text(text) => {
            let mut head = Vec::with_capacity(MAX_HEADER_LEN);
            Writer::new(&mut head).str_head(text.len());
            Ok(Buffer::copy(&[&head, &text]))
        }
        WriteOutcome::Wrong(error) => Err(unwritable(&error)),
        WriteOutcome::NotBasic => encode(value, Format::MessagePackArray),
    }
}

/// Leniently decodes the arguments of a function for versions up to v0.20, after the strict decoding has failed: their
/// number must match, but their members are decoded as by the peer. `None` if the body is no list of arguments, or does
/// not decode as `T`.
///
/// # Errors
///
/// If the number of arguments differs.
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

/// Leniently decodes the message of a method from the arguments of a call for versions up to v0.20, as the peer does,
/// after the strict decoding has failed: missing members are zero or empty, surplus ones are ignored.
#[cold]
pub(super) fn read_list<T: DeserializeOwned>(body: &Body) -> Option<T> {
    match is_list(body) {
        true => lenient_message_pack::from_slice(&body.bytes, Lengths::Any).ok(),
        false => None,
    }
}

/// Whether the body is a list of arguments for versions up to v0.20.
pub(super) fn is_list(body: &Body) -> bool {
    body.positional && matches!(body.format, Format::MessagePack | Format::MessagePackArray)
}

/// Maximum length of a text's header in MessagePack.
const MAX_HEADER_LEN: usize = 5;

/// Empty list in MessagePack.
pub(super) const EMPTY_LIST: &[u8] = &[0x90];

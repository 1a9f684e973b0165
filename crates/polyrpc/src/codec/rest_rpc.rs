//! How rest_rpc writes arguments and results.
//!
//! Up to v0.20 in MessagePack. Since v0.21 a single basic value (a number, a truth value, a text) is written as
//! text, and anything else in struct_pack, arguments as a `std::tuple` (rest_rpc `rpc_router.hpp`,
//! `rest_rpc_client.hpp`). Which it is, only the types say.

mod publish;
mod shape;
mod text;

use ::serde::Serialize;
use ::serde::de::DeserializeOwned;
use bytes::Bytes;
use polyrpc_wire::payload::struct_pack;
use polyrpc_wire::{Format, Status};

use super::Body;
use super::serde::{encode, encode_value, unreadable, unwritable};

pub(crate) use publish::{publish, publish_coded, published, unpack};

use shape::Shape;
use text::{Read, Written};

/// Writes the arguments of a call: the members of a tuple, or a single one that stands alone.
pub(crate) fn encode_arguments(
    arguments: &(impl Serialize + ?Sized),
    format: Format,
) -> Result<Body, Status> {
    let shape = Shape::of(arguments);
    let (positional, bytes) = match (format, shape) {
        (Format::RestRpc, _) => (true, write_arguments(arguments, shape)?),
        (_, Shape::Nothing) => (true, Bytes::from_static(EMPTY_LIST)),
        (_, Shape::List) => (true, encode(arguments, format)?),
        (_, Shape::Sole) => (false, encode(arguments, format)?),
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
    let bytes = match text::write(request, Shape::of(request) == Shape::List) {
        Written::Text(text) => text,
        Written::Wrong(error) => return Err(unwritable(&error)),
        Written::NotBasic => {
            struct_pack::arguments_to_vec(request).map_err(|error| unwritable(&error))?.into()
        }
    };
    Ok(Body { positional: true, ..Body::new(format, bytes) })
}

fn write_arguments(arguments: &(impl Serialize + ?Sized), shape: Shape) -> Result<Bytes, Status> {
    match text::write(arguments, shape == Shape::List) {
        Written::Text(text) => Ok(text),
        Written::Wrong(error) => Err(unwritable(&error)),
        Written::NotBasic if shape == Shape::List => encode(arguments, Format::StructPack),
        Written::NotBasic => encode(&(arguments,), Format::StructPack),
    }
}

/// Reads the arguments of a call as a tuple.
pub(super) fn read_arguments<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Status> {
    match text::read(bytes, true) {
        Read::Value(arguments) => Ok(arguments),
        Read::Wrong(error) => Err(unreadable(&error)),
        Read::NotBasic => struct_pack::from_slice(bytes).map_err(|error| unreadable(&error)),
    }
}

/// Writes a single argument or a result.
pub(super) fn write_value<T>(value: &T) -> Result<Bytes, Status>
where
    T: Serialize + DeserializeOwned + 'static,
{
    match text::write(value, false) {
        Written::Text(text) => Ok(text),
        Written::Wrong(error) => Err(unwritable(&error)),
        Written::NotBasic => encode_value(value, Format::StructPack),
    }
}

/// Reads a result.
pub(super) fn read_value<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Status> {
    match text::read(bytes, false) {
        Read::Value(value) => Ok(value),
        Read::Wrong(error) => Err(unreadable(&error)),
        Read::NotBasic => struct_pack::from_slice(bytes).map_err(|error| unreadable(&error)),
    }
}

/// Whether the value is none, as a function without a result returns.
pub(super) fn is_nothing(value: &(impl Serialize + ?Sized)) -> bool {
    Shape::of(value) == Shape::Nothing
}

/// An empty list in MessagePack.
pub(super) const EMPTY_LIST: &[u8] = &[0x90];

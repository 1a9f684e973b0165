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
use polyrpc_wire::payload::msgpack::{Reader, Token, Writer};
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
        (Format::MessagePackArray, Shape::Text) => (false, pack_text(arguments)?),
        (_, Shape::Sole | Shape::Text) => (false, encode(arguments, format)?),
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

/// Writes a result up to v0.20: in MessagePack, and not at all where there is none.
pub(super) fn write_packed(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Status> {
    match Shape::of(value) {
        Shape::Nothing => Ok(Bytes::new()),
        Shape::Text => pack_text(value),
        Shape::List | Shape::Sole => encode(value, Format::MessagePackArray),
    }
}

/// Writes bytes as a text in MessagePack: serde would have them be `bin`.
fn pack_text(value: &(impl Serialize + ?Sized)) -> Result<Bytes, Status> {
    match text::write(value, false) {
        Written::Text(text) => {
            let mut packed = Vec::with_capacity(LONGEST_HEAD + text.len());
            Writer::new(&mut packed).raw_str(&text);
            Ok(packed.into())
        }
        Written::Wrong(error) => Err(unwritable(&error)),
        Written::NotBasic => encode(value, Format::MessagePackArray),
    }
}

/// The arguments of a call up to v0.20 without those beyond `wanted`, if there are some: the peer does not look at them
/// (msgpack-c `adaptor/cpp11/tuple.hpp`).
pub(super) fn without_surplus(body: &Body, wanted: u32) -> Option<Body> {
    if !body.positional || !matches!(body.format, Format::MessagePack | Format::MessagePackArray) {
        return None;
    }
    let mut reader = Reader::new(&body.bytes);
    let Ok(Token::Array(count)) = reader.next() else { return None };
    if count <= wanted {
        return None;
    }
    let all = reader.rest();
    for _ in 0..wanted {
        reader.skip().ok()?;
    }
    let arguments = all.get(..all.len() - reader.rest().len())?;
    let mut bytes = Vec::with_capacity(LONGEST_HEAD + arguments.len());
    Writer::new(&mut bytes).array(wanted);
    bytes.extend_from_slice(arguments);
    Some(Body { bytes: bytes.into(), ..*body })
}

/// How long the head of a text or a list in MessagePack may be.
const LONGEST_HEAD: usize = 5;

/// An empty list in MessagePack.
pub(super) const EMPTY_LIST: &[u8] = &[0x90];

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(format: Format, bytes: &'static [u8]) -> Body {
        Body { positional: true, ..Body::new(format, bytes) }
    }

    #[test]
    fn arguments_beyond_those_wanted_are_cut() {
        for (arguments, wanted, want) in [
            (&b"\x93\x01\x02\x03"[..], 2, &b"\x92\x01\x02"[..]),
            (b"\xdc\x00\x11\x92\x01\x02\xa1a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 2, b"\x92\x92\x01\x02\xa1a"),
            (b"\x91\x01", 0, b"\x90"),
        ] {
            let cut = without_surplus(&listed(Format::MessagePackArray, arguments), wanted);
            assert_eq!(cut.expect("there are more").bytes, want);
        }
        for (arguments, wanted) in
            [(&b"\x92\x01\x02"[..], 2), (b"\x91\x01", 2), (b"\x01", 0), (b"\x93\x01", 2)]
        {
            assert!(without_surplus(&listed(Format::MessagePackArray, arguments), wanted).is_none());
        }
        assert!(without_surplus(&listed(Format::RestRpc, b"\x93\x01\x02\x03"), 2).is_none());
        assert!(without_surplus(&Body::new(Format::MessagePack, &b"\x93\x01\x02\x03"[..]), 2).is_none());
    }
}

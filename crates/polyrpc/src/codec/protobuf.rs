use std::fmt;

use ::serde::Deserializer as _;
use ::serde::de::{IgnoredAny, SeqAccess, Visitor};
use buffa::SizeCache;
use buffa::message::checked_encode_size;
use bytes::Bytes;
use polyrpc_core::{Format, Status};
use polyrpc_payload::msgpack::{Reader, Token};
use polyrpc_payload::{schema, transcode};
use serde_json::value::RawValue;

use super::buffer::Buffer;
use super::bulk::is_bulk_protobuf;
use super::{Body, Codec, TypeSchema, type_schema, unknown, unsupported};

/// Messages generated from a `.proto` by `polyrpc-build`.
///
/// The message itself encodes and decodes binary protobuf; every other format is transcoded from and to it, with the
/// schema that the generated code contains.
#[derive(Debug, Clone, Copy)]
pub struct Protobuf;

impl<T> Codec<T> for Protobuf
where
    T: buffa::Message + buffa::MessageName + 'static,
{
    const PREFERRED: Format = Format::Protobuf;

    fn carries(format: Format) -> bool {
        !matches!(format, Format::FlatBuffers | Format::Other(_))
    }

    fn describe(pool: &schema::Pool) -> Option<schema::Message> {
        pool.message(T::FULL_NAME)
    }

    fn type_schema(schema: Option<&schema::Message>) -> TypeSchema {
        schema.map_or(TypeSchema::Any, type_schema::from_message)
    }

    fn decodes_slowly(body: &Body, schema: Option<&schema::Message>) -> bool {
        !is_bulk(body, schema)
    }

    fn decode(body: Body, schema: Option<&schema::Message>) -> Result<T, Status> {
        let mut binary = to_binary(body, schema, T::FULL_NAME)?;
        T::decode(&mut binary).map_err(|error| unreadable(T::FULL_NAME, &error))
    }

    fn encode(value: &T, format: Format, schema: Option<&schema::Message>) -> Result<Bytes, Status> {
        from_binary(encode_binary(value)?, format, schema, T::FULL_NAME)
    }
}

fn encode_binary<T: buffa::Message + buffa::MessageName>(value: &T) -> Result<Bytes, Status> {
    let mut sizes = SizeCache::new();
    let size = checked_encode_size(value.compute_size(&mut sizes));
    let size = size.map_err(|error| unwritable(T::FULL_NAME, &error))?;
    let mut buffer = Buffer::with_capacity(size as usize);
    value.write_to(&mut sizes, buffer.memory());
    Ok(buffer.finish())
}

/// Whether a long message decodes as fast as its bytes are copied.
pub(super) fn is_bulk(body: &Body, schema: Option<&schema::Message>) -> bool {
    match (body.format, schema) {
        (Format::Protobuf | Format::RestRpc, Some(schema)) => is_bulk_protobuf(schema, &body.bytes),
        _ => false,
    }
}

/// Transcodes any format to binary protobuf, and checks the required fields.
pub(super) fn to_binary(body: Body, schema: Option<&schema::Message>, name: &str) -> Result<Bytes, Status> {
    let body = single_argument(body);
    let binary = match (body.format, schema) {
        // rest_rpc uses a type's own `serialize`, which is the binary format for protobuf.
        (Format::Protobuf | Format::RestRpc, _) => body.bytes,
        (format @ (Format::FlatBuffers | Format::Other(_) | Format::Raw), _) | (format, None) => {
            return Err(unsupported(name, format));
        }
        // An omitted body is the default message: an HTTP request's body (brpc `policy/http_rpc_protocol.cpp`), a
        // reply's payload (rpcx `client/client.go`, `input`). A struct without fields is encoded as zero bytes in gob.
        (format, Some(_)) if body.bytes.is_empty() && (!body.required || format == Format::Gob) => {
            Bytes::new()
        }
        (format, Some(schema)) => {
            let parsed = transcode::parse(schema, format, &body.bytes);
            let parsed = parsed.map_err(|error| unreadable(name, &error))?;
            unknown::add(parsed.unknown);
            parsed.protobuf.into()
        }
    };
    match schema.filter(|schema| schema.has_required()) {
        Some(schema) => {
            schema.check_required(&binary).map_err(|error| unreadable(name, &error)).map(|()| binary)
        }
        None => Ok(binary),
    }
}

/// Returns the only member of a list of arguments in MessagePack, as sent by rest_rpc, or the first one in JSON, as
/// Go's jsonrpc does.
fn single_argument(body: Body) -> Body {
    let mut reader = Reader::new(&body.bytes);
    match body.format {
        Format::Json(_) if body.positional => {
            match first_of_list(&body.bytes).map(|first| body.bytes.slice_ref(first.get().as_bytes())) {
                Some(bytes) => Body { bytes, positional: false, ..body },
                None => body,
            }
        }
        Format::MessagePack | Format::MessagePackArray
            if body.positional && reader.next() == Ok(Token::Array(1)) =>
        {
            Body { bytes: body.bytes.slice_ref(reader.rest()), positional: false, ..body }
        }
        _ => body,
    }
}

/// Returns the first member of a list in JSON.
fn first_of_list(list: &[u8]) -> Option<&RawValue> {
    let mut deserializer = serde_json::Deserializer::from_slice(list);
    let first = deserializer.deserialize_seq(First).ok()?;
    deserializer.end().ok()?;
    first
}

/// Keeps the first member of a list: a list of all of them would take a multiple of the memory of their text.
struct First;

impl<'de> Visitor<'de> for First {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let first = list.next_element()?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }
}

/// Transcodes binary protobuf to any format.
pub(super) fn from_binary(
    binary: Bytes,
    format: Format,
    schema: Option<&schema::Message>,
    name: &str,
) -> Result<Bytes, Status> {
    match (format, schema) {
        // Raw is the format of protocols that have none.
        (Format::Protobuf | Format::RestRpc | Format::Raw, _) => Ok(binary),
        (format, Some(schema)) => transcode::from_protobuf(schema, format, &binary)
            .map(Bytes::from)
            .map_err(|error| unwritable(name, &error)),
        (format, None) => Err(unsupported(name, format)),
    }
}

#[cold]
fn unreadable(name: &str, error: &dyn fmt::Display) -> Status {
    Status::invalid_argument(format!("cannot read {name}: {error}"))
}

#[cold]
pub(super) fn unwritable(name: &str, error: &dyn fmt::Display) -> Status {
    Status::internal(format!("cannot write {name}: {error}"))
}

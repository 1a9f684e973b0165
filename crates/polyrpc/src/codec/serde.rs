use ::serde::Serialize;
use ::serde::de::value::{Error as ValueError, UnitDeserializer};
use ::serde::de::{DeserializeOwned, IntoDeserializer};
use bytes::Bytes;
use polyrpc_wire::payload::{gob, schema};
use polyrpc_wire::{Format, Status};
use rmp_serde::config::BytesMode;

use super::{Body, Codec, unsupported};

/// Plain types with serde's derives: JSON, and MessagePack as Go's rpcx writes structs (a map keyed by field
/// names, byte strings as `bin`), and gob as Go's net/rpc speaks it.
#[derive(Debug, Clone, Copy)]
pub struct Serde;

impl<T: Serialize + DeserializeOwned + 'static> Codec<T> for Serde {
    const PREFERRED: Format = Format::MessagePack;

    fn carries(format: Format) -> bool {
        matches!(format, Format::Json(_) | Format::MessagePack | Format::Gob)
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<T, Status> {
        match decode(&body) {
            // A list of one argument for a method of one argument.
            Err(status) if body.positional => decode(&body).map(|(sole,)| sole).map_err(|_| status),
            result => result,
        }
    }

    fn encode(value: &T, format: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        match format {
            // The one format that tells the type too, which a value alone does not show whole.
            Format::Gob => gob::to_vec(value).map(Bytes::from).map_err(|error| unwritable(&error)),
            format => encode(value, format),
        }
    }
}

/// Reads a value of a plain type.
pub(crate) fn decode<T: DeserializeOwned>(body: &Body) -> Result<T, Status> {
    // A call without parameters is a call with none, not a broken one.
    let or_none = |none: &'static [u8]| if body.bytes.is_empty() { none } else { &body.bytes[..] };
    match body.format {
        Format::Json(_) => serde_json::from_slice(or_none(b"null")).map_err(|error| unreadable(&error)),
        Format::MessagePack => rmp_serde::from_slice(or_none(NIL)).map_err(|error| unreadable(&error)),
        Format::Gob if body.bytes.is_empty() => nothing_in_gob(),
        Format::Gob => gob::from_slice(&body.bytes).map_err(|error| unreadable(&error)),
        format => Err(unsupported("a serde type", format)),
    }
}

/// MessagePack's `nil`.
const NIL: &[u8] = &[0xc0];

/// What Go's empty struct is here, or no value at all.
fn nothing_in_gob<T: DeserializeOwned>() -> Result<T, Status> {
    let unit: UnitDeserializer<ValueError> = ().into_deserializer();
    T::deserialize(unit).or_else(|_| gob::from_slice(EMPTY_STRUCT).map_err(|error| unreadable(&error)))
}

/// A gob stream of a struct without name and fields.
const EMPTY_STRUCT: &[u8] = b"\x09\x7f\x03\x01\x02\xff\x80\x00\x00\x00\x03\xff\x80\x00";

/// Writes a value of a plain type.
pub(crate) fn encode(value: &(impl Serialize + ?Sized), format: Format) -> Result<Bytes, Status> {
    match format {
        Format::Json(_) => serde_json::to_vec(value).map(Bytes::from).map_err(|error| unwritable(&error)),
        Format::MessagePack => {
            let mut bytes = Vec::with_capacity(64);
            let mut writer = rmp_serde::Serializer::new(&mut bytes)
                .with_struct_map()
                .with_bytes(BytesMode::ForceIterables);
            value.serialize(&mut writer).map_err(|error| unwritable(&error))?;
            Ok(bytes.into())
        }
        Format::Gob => gob::to_vec_plain(value).map(Bytes::from).map_err(|error| unwritable(&error)),
        format => Err(unsupported("a serde type", format)),
    }
}

#[cold]
fn unreadable(error: &dyn std::fmt::Display) -> Status {
    Status::invalid_argument(format!("cannot read the request: {error}"))
}

#[cold]
fn unwritable(error: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("cannot write the reply: {error}"))
}

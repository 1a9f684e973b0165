use ::serde::Serialize;
use ::serde::de::DeserializeOwned;
use bytes::Bytes;
use polyrpc_wire::payload::schema;
use polyrpc_wire::{Format, Status};
use rmp_serde::config::BytesMode;

use super::{Body, Codec, rest_rpc, unsupported};

/// Plain types with serde's derives: JSON, MessagePack as Go's rpcx writes structs (a map keyed by field names, byte
/// strings as `bin`) or as C++ does (an array), and what rest_rpc writes.
#[derive(Debug, Clone, Copy)]
pub struct Serde;

impl<T: Serialize + DeserializeOwned + 'static> Codec<T> for Serde {
    const PREFERRED: Format = Format::MessagePack;

    fn carries(format: Format) -> bool {
        matches!(
            format,
            Format::Json(_) | Format::MessagePack | Format::MessagePackArray | Format::RestRpc
        )
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<T, Status> {
        match body.format {
            _ if !body.positional => decode(&body),
            // A list of one argument for a method of one argument. In JSON the list may be the argument itself, as
            // peers with one request type have it.
            Format::Json(_) => decode(&body).or_else(|status| sole(&body).ok_or(status)),
            _ => sole(&body).map_or_else(|| decode(&body.or_nothing()), Ok),
        }
    }

    fn encode(value: &T, format: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        encode_value(value, format)
    }
}

/// The only member of a list of arguments.
fn sole<T: DeserializeOwned + 'static>(body: &Body) -> Option<T> {
    decode(body).map(|(sole,)| sole).ok()
}

impl Body {
    /// The same, in which no arguments are none, not an empty list.
    fn or_nothing(mut self) -> Self {
        if self.bytes == rest_rpc::EMPTY_LIST {
            self.bytes = Bytes::from_static(NIL);
        }
        self
    }
}

/// Reads a value of a plain type, or the arguments of a call as a tuple.
pub(crate) fn decode<T: DeserializeOwned + 'static>(body: &Body) -> Result<T, Status> {
    // A call without parameters is a call with none, not a broken one.
    let or_none = |none: &'static [u8]| if body.bytes.is_empty() { none } else { &body.bytes[..] };
    match body.format {
        Format::Json(_) => serde_json::from_slice(or_none(b"null")).map_err(|error| unreadable(&error)),
        Format::MessagePack | Format::MessagePackArray => {
            rmp_serde::from_slice(or_none(NIL)).map_err(|error| unreadable(&error))
        }
        Format::RestRpc if body.positional => rest_rpc::read_arguments(&body.bytes),
        Format::RestRpc => rest_rpc::read_value(&body.bytes),
        format => Err(unsupported("a serde type", format)),
    }
}

/// MessagePack's `nil`.
const NIL: &[u8] = &[0xc0];

/// Writes a value whose type is known from outside: that of a result, or of a single argument.
pub(crate) fn encode_value<T>(value: &T, format: Format) -> Result<Bytes, Status>
where
    T: Serialize + DeserializeOwned + 'static,
{
    match format {
        Format::RestRpc => rest_rpc::write_value(value),
        // No result is no value, where that is told from a result that is none.
        Format::MessagePackArray if rest_rpc::is_nothing(value) => Ok(Bytes::new()),
        format => encode(value, format),
    }
}

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
        Format::MessagePackArray => {
            let mut bytes = Vec::with_capacity(64);
            let mut writer = rmp_serde::Serializer::new(&mut bytes).with_bytes(BytesMode::ForceIterables);
            value.serialize(&mut writer).map_err(|error| unwritable(&error))?;
            Ok(bytes.into())
        }
        format => Err(unsupported("a serde type", format)),
    }
}

#[cold]
pub(super) fn unreadable(error: &dyn std::fmt::Display) -> Status {
    Status::invalid_argument(format!("cannot read the request: {error}"))
}

#[cold]
pub(super) fn unwritable(error: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("cannot write the reply: {error}"))
}

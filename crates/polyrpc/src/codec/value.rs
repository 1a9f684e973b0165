//! Values of plain types, in formats that do not depend on a protocol.

use std::fmt::Display;

use ::serde::Serialize;
use ::serde::de::DeserializeOwned;
use bytes::Bytes;
use polyrpc_core::{Format, Status};
use polyrpc_payload::gob;
use polyrpc_payload::struct_pack::{Form, Plan, Type};
use rmp_serde::config::BytesMode;

use super::buffer::Buffer;
use super::{finite, unsupported};

/// Encodes a value of a plain type.
pub(crate) fn encode(value: &(impl Serialize + ?Sized), format: Format) -> Result<Bytes, Status> {
    match format {
        Format::Json(_) => encode_with(|buffer| finite::to_json(buffer, value)),
        Format::MessagePack => encode_with(|buffer| {
            let writer = rmp_serde::Serializer::new(buffer).with_struct_map();
            value.serialize(&mut writer.with_bytes(BytesMode::ForceIterables))
        }),
        Format::MessagePackArray => encode_with(|buffer| {
            let writer = rmp_serde::Serializer::new(buffer);
            value.serialize(&mut writer.with_bytes(BytesMode::ForceIterables))
        }),
        Format::StructPack => match Type::for_value(value).map_err(|error| unwritable(&error))? {
            Type::Unit => Ok(Bytes::new()),
            ty => struct_packed(&Plan::new(ty).map_err(|error| unwritable(&error))?, value),
        },
        Format::Gob => gob::to_vec_plain(value).map(Bytes::from).map_err(|error| unwritable(&error)),
        format => Err(unsupported("a serde type", format)),
    }
}

/// Encodes a message piece by piece.
fn encode_with<E: Display>(write: impl FnOnce(&mut Buffer) -> Result<(), E>) -> Result<Bytes, Status> {
    let mut buffer = Buffer::with_capacity(INITIAL_CAPACITY);
    write(&mut buffer).map_err(|error| unwritable(&error))?;
    Ok(buffer.finish())
}

/// Initial capacity, enough for a typical message.
const INITIAL_CAPACITY: usize = 64;

/// Encodes a value in struct_pack whose type is known statically.
pub(super) fn encode_typed<T: Serialize + DeserializeOwned + 'static>(value: &T) -> Result<Bytes, Status> {
    match Plan::for_type::<T>().map_err(|error| unwritable(&error))? {
        plan if *plan.ty() == Type::Unit => Ok(Bytes::new()),
        plan => struct_packed(&plan, value),
    }
}

fn struct_packed(plan: &Plan, value: &(impl Serialize + ?Sized)) -> Result<Bytes, Status> {
    plan.encode(value, Form::Bare).map(Bytes::from).map_err(|error| unwritable(&error))
}

#[cold]
pub(super) fn unreadable(error: &dyn Display) -> Status {
    Status::invalid_argument(format!("cannot read the value: {error}"))
}

#[cold]
pub(super) fn unwritable(error: &dyn Display) -> Status {
    Status::internal(format!("cannot write the value: {error}"))
}

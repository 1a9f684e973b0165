#![doc = include_str!("README.md")]

use std::sync::Arc;

use serde_core::Serialize;
use serde_core::de::{DeserializeOwned, IntoDeserializer};

mod types;

mod literal;
mod name;

mod cpp;
mod schema_of_type;
mod schema_of_value;

mod encode_plan;

mod fast;
mod head;
mod input;
mod output;

mod de;
mod json;
mod ser;

mod error;

#[cfg(test)]
mod tests;

pub use self::cpp::{Char, Char16, U16String, U32String, VarI32, VarI64, VarU32, VarU64};
pub use self::encode_plan::Plan;
pub use self::error::{Error, Mismatch};
pub use self::output::Form;
pub use self::types::{Character, Image, Scalar, Struct, Type};

/// Values nested deeper are not read.
pub const MAX_DEPTH: usize = 128;

/// Types nested deeper have no literal here.
const MAX_TYPE_DEPTH: usize = 64;

/// Writes a value, as peers do that were built for release.
///
/// # Errors
///
/// [`Error::Type`] when the Rust type has no form in struct_pack, [`Error::Value`] when the value is not written as it
/// would be read.
pub fn to_vec<T: Serialize + DeserializeOwned + 'static>(value: &T) -> Result<Vec<u8>, Error> {
    Plan::of::<T>()?.encode(value, Form::Bare)
}

/// Reads a value, with the literal of its type or without. No bytes are `()`: functions that return `void` answer so.
///
/// # Errors
///
/// [`Error::Type`] when the Rust type has no form in struct_pack, [`Error::Mismatch`] when the bytes hold another type,
/// and all that can be wrong with them.
pub fn from_slice<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Error> {
    let plan = Plan::of::<T>()?;
    match plan.ty() {
        Type::Unit if bytes.is_empty() => T::deserialize(().into_deserializer()),
        _ => plan.decode(bytes),
    }
}

/// Writes the arguments of a call: a tuple is a list of them, anything else is the only one.
///
/// # Errors
///
/// As [`to_vec`].
pub fn arguments_to_vec<T: Serialize + DeserializeOwned + 'static>(value: &T) -> Result<Vec<u8>, Error> {
    match list_of::<T>()? {
        Some(plan) => plan.encode(value, Form::Bare),
        None => Plan::of::<(T,)>()?.encode(&(value,), Form::Bare),
    }
}

/// Writes the arguments of a call that can only be written, by the type that they tell: a tuple is a list of them,
/// anything else is the only one.
///
/// # Errors
///
/// As [`Type::of_value`].
pub fn arguments_of_value<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    match Type::of_value(value)? {
        ty if ty.is_tuple() => Plan::new(ty)?.encode(value, Form::Bare),
        ty => Plan::new(Type::tuple(vec![ty]))?.encode(&(value,), Form::Bare),
    }
}

/// Reads the arguments of a call: a tuple is a list of them, anything else is the only one.
///
/// # Errors
///
/// As [`from_slice`].
pub fn arguments_from_slice<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Error> {
    match list_of::<T>()? {
        Some(plan) => plan.decode(bytes),
        None => Plan::of::<(T,)>()?.decode(bytes).map(|(sole,)| sole),
    }
}

/// The plan of a type that is a list of arguments by itself.
fn list_of<T: DeserializeOwned + 'static>() -> Result<Option<Arc<Plan>>, Error> {
    let plan = Plan::of::<T>()?;
    Ok(plan.ty().is_tuple().then_some(plan))
}

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

/// Nesting limit of decoded values.
pub const MAX_DEPTH: usize = 128;

/// Nesting limit of types with a literal.
const MAX_TYPE_DEPTH: usize = 64;

/// Encodes a value, like peers built for release.
///
/// # Errors
///
/// [`Error::Type`] if the Rust type cannot be represented in struct_pack, [`Error::Value`] if the value's `Serialize`
/// does not match its `Deserialize`.
pub fn to_vec<T: Serialize + DeserializeOwned + 'static>(value: &T) -> Result<Vec<u8>, Error> {
    Plan::for_type::<T>()?.encode(value, Form::Bare)
}

/// Decodes a value, with or without the literal of its type. Empty input is `()`: the response of functions that return
/// `void`.
///
/// # Errors
///
/// [`Error::Type`] if the Rust type cannot be represented in struct_pack, [`Error::Mismatch`] if the bytes have another
/// type, and the other errors of malformed bytes.
pub fn from_slice<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Error> {
    let plan = Plan::for_type::<T>()?;
    match plan.ty() {
        Type::Unit if bytes.is_empty() => T::deserialize(().into_deserializer()),
        _ => plan.decode(bytes),
    }
}

/// Encodes the arguments of a call: a tuple is a list of them, anything else is the only one.
///
/// # Errors
///
/// See [`to_vec`].
pub fn arguments_to_vec<T: Serialize + DeserializeOwned + 'static>(value: &T) -> Result<Vec<u8>, Error> {
    match list_of::<T>()? {
        Some(plan) => plan.encode(value, Form::Bare),
        None => Plan::for_type::<(T,)>()?.encode(&(value,), Form::Bare),
    }
}

/// Encodes the arguments of a call whose type implements only `Serialize`, with the type inferred from the values: a
/// tuple is a list of them, anything else is the only one.
///
/// # Errors
///
/// See [`Type::for_value`].
pub fn arguments_of_value<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    match Type::for_value(value)? {
        ty if ty.is_tuple() => Plan::new(ty)?.encode(value, Form::Bare),
        ty => Plan::new(Type::tuple(vec![ty]))?.encode(&(value,), Form::Bare),
    }
}

/// Decodes the arguments of a call: a tuple is a list of them, anything else is the only one.
///
/// # Errors
///
/// See [`from_slice`].
pub fn arguments_from_slice<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Error> {
    match list_of::<T>()? {
        Some(plan) => plan.decode(bytes),
        None => Plan::for_type::<(T,)>()?.decode(bytes).map(|(sole,)| sole),
    }
}

/// Returns the plan of a type that is itself an argument list, not a single argument.
fn list_of<T: DeserializeOwned + 'static>() -> Result<Option<Arc<Plan>>, Error> {
    let plan = Plan::for_type::<T>()?;
    Ok(plan.ty().is_tuple().then_some(plan))
}

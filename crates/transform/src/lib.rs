#![doc = include_str!("../README.md")]

// From bottom to top: no module refers to one that comes after it.
pub mod closest;
mod direction;
mod error;
mod position;

pub mod json;
mod raw;

mod schema;

mod reflection;

pub mod strict;
mod typed;

pub mod cpp;
pub mod flatbuffers;
pub mod msgpack;
pub mod struct_pack;

mod translate;

pub use self::direction::Direction;
pub use self::error::Error;
pub use self::raw::readable;
pub use self::reflection::Reflection;
pub use self::schema::{SchemaSource, Types, service_hint, split};
pub use self::translate::{
    MethodSchema, OnLoss, Options, Reason, Schemas, Translation, Translator, TranslatorError,
};

#![doc = include_str!("README.md")]

mod message;

mod fields;
mod table;
mod text;
mod value;
mod vector;

mod layout;

mod table_verifier;
mod verify;

mod builder;

#[cfg(test)]
mod tests;

pub use self::builder::{Build, Builder, Offset, TableBuilder};
pub use self::fields::Fields;
pub use self::message::Message;
pub use self::table::{Opaque, Table};
pub use self::table_verifier::{TableVerifier, UnionVerifier};
pub use self::text::Text;
pub use self::value::{Inline, Keyed, Value, member};
pub use self::vector::{Iter, Vector};
pub use self::verify::{Invalid, Limits, Verifier};

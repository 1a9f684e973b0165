#![doc = include_str!("README.md")]

mod message;

mod fields;
mod text;
mod value;
mod vector;

mod verify;

mod builder;

#[cfg(test)]
mod tests;

pub use builder::{Build, Builder, Offset, TableBuilder};
pub use fields::Fields;
pub use message::{Message, Opaque, Table};
pub use text::Text;
pub use value::{Inline, Keyed, Value, member};
pub use vector::{Iter, Vector};
pub use verify::{Invalid, Limits, TableVerifier, UnionVerifier, Verifier};

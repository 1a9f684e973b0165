//! HPACK: header lists as short blocks (RFC 7541).
//!
//! [`Decoder`] and [`Encoder`] hold the dynamic table of one direction each (`table`); strings are in the code of
//! `huffman`, lengths and indices are numbers of `integer`.

mod decode;
mod encode;
mod fields;
mod huffman;
mod integer;
mod table;

pub use decode::{DecodeError, Decoder};
pub use encode::{Encoder, Indexing, encode_stateless, stateless_field};
pub use fields::Fields;

#[cfg(test)]
mod tests;

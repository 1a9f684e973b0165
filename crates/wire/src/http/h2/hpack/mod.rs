//! HPACK header compression (RFC 7541).
//!
//! [`Decoder`] and [`Encoder`] hold the dynamic table of one direction each (`table`); strings use the code of
//! `huffman`, lengths and indices the encoding of `integer`.

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

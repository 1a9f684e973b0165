//! What is inside a message: how it is written ([`Format`]), how it is compressed ([`Compression`]), and,
//! for messages of a `.proto`, how one format becomes another ([`schema`], [`transcode`]).

pub(crate) mod append;
mod calendar;
pub mod compress;
pub mod flatbuffers;
pub mod gob;
pub mod msgpack;
pub(crate) mod protobuf;
pub mod schema;
pub mod struct_pack;
pub mod transcode;

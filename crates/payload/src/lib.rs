//! What is inside a message: how it is written ([`Format`](polyrpc_core::Format)), how it is compressed ([`Compression`](polyrpc_core::Compression)), and,
//! for messages of a `.proto`, how one format becomes another ([`schema`], [`transcode`]).

#[doc(hidden)]
pub mod calendar;
pub mod compress;
pub mod flatbuffers;
pub mod gob;
pub mod msgpack;
pub mod schema;
pub mod struct_pack;
pub mod transcode;

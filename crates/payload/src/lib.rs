//! Message payloads: encodings ([`Format`](polyrpc_core::Format)), compression
//! ([`Compression`](polyrpc_core::Compression)), and, for messages of a `.proto`, conversion between formats
//! ([`schema`], [`transcode`]).

#[doc(hidden)]
pub mod byte_string;
#[doc(hidden)]
pub mod calendar;
pub mod compress;
pub mod flatbuffers;
pub mod gob;
#[doc(hidden)]
pub mod lenient_base64;
pub mod msgpack;
pub mod schema;
pub mod struct_pack;
pub mod transcode;

mod type_schema;

pub use byte_string::ByteString;
pub use type_schema::TypeSchema;

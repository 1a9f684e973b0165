//! What is inside a message: how it is written ([`Format`]), how it is compressed ([`Compression`]), and,
//! for messages of a `.proto`, how one format becomes another ([`schema`], [`transcode`]).

pub(crate) mod append;
#[doc(hidden)]
pub mod calendar;
pub mod compress;
pub mod flatbuffers;
pub mod gob;
pub mod msgpack;
pub(crate) mod protobuf;
pub mod schema;
pub mod struct_pack;
pub mod transcode;

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// Protobuf's binary format.
    #[default]
    Protobuf,
    /// JSON, in the spelling of one of the peers.
    Json(Json),
    /// Protobuf's text format.
    ProtoText,
    /// MessagePack; a struct is a map keyed by field names.
    MessagePack,
    /// MessagePack; a struct is an array of its members in their order, as `MSGPACK_DEFINE` of msgpack-c has it.
    /// In what is read it may be a map too.
    MessagePackArray,
    /// rest_rpc's since v0.21: a single basic value is a text, anything else is in struct_pack.
    RestRpc,
    /// struct_pack, of rest_rpc and yalantinglibs: the bytes of C++ types.
    StructPack,
    /// FlatBuffers, read where they lie.
    FlatBuffers,
    /// Gob, Go's own: a stream of a single value, which begins with what its types are.
    Gob,
    /// Bytes that mean nothing to the framework.
    Raw,
    /// A format this framework cannot read, by the protocol's own number for it. rpcx's Thrift, 4, a handler of raw
    /// bytes can take; any other wants a codec of its user's own.
    Other(u8),
}

impl Format {
    /// The name as it is shown: `protobuf`, `json`, `msgpack`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Protobuf => "protobuf",
            Self::Json(_) => "json",
            Self::ProtoText => "proto-text",
            Self::MessagePack => "msgpack",
            Self::MessagePackArray => "msgpack-array",
            Self::RestRpc => "rest_rpc",
            Self::StructPack => "struct_pack",
            Self::FlatBuffers => "flatbuffers",
            Self::Gob => "gob",
            Self::Raw => "raw",
            Self::Other(_) => "other",
        }
    }
}

/// Whose JSON: they agree on plain values and differ on what `.proto` adds to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Json {
    /// The canonical JSON of proto3: lowerCamelCase names, 64-bit integers as strings.
    #[default]
    Proto3,
    /// As brpc's json2pb writes it: names as declared, 64-bit integers as numbers. It is read like canonical JSON: a
    /// value of the wrong type is an error, and a field is known by either name.
    Brpc,
    /// The same, read as brpc reads it too: a value of the wrong type is dropped, and a field is known by the name that
    /// it is declared with only.
    BrpcLenient,
    /// Go's `encoding/json` of a struct, as rpcx writes it: names as declared and found without regard to
    /// case, fields with their zero values written.
    Go,
}

/// How an encoded message is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// One gzip member (RFC 1952).
    Gzip,
    /// A zlib stream (RFC 1950).
    Zlib,
    /// One raw snappy block.
    Snappy,
    /// A stream of snappy frames, as gRPC's codecs write it.
    SnappyFrames,
    /// The uncompressed length as a varint, then one raw LZ4 block.
    Lz4,
    /// One zstd frame (RFC 8878).
    Zstd,
    /// A number no decoder is known for.
    Other(u8),
}

impl Compression {
    /// The name as it is shown: `none`, `gzip`, `zlib`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Snappy | Self::SnappyFrames => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Other(_) => "unknown",
        }
    }
}

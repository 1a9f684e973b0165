//! Message formats and compressions.

/// Encoding of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// Protobuf's binary format.
    #[default]
    Protobuf,
    /// JSON, in the dialect of one of the peers.
    Json(Json),
    /// Protobuf's text format.
    ProtoText,
    /// MessagePack; a struct is a map keyed by field names.
    MessagePack,
    /// MessagePack; a struct is an array of its members in order, as with `MSGPACK_DEFINE` of msgpack-c. Maps are
    /// accepted too when decoding.
    MessagePackArray,
    /// rest_rpc's format since v0.21: a single basic value is text, anything else is struct_pack.
    RestRpc,
    /// struct_pack, of rest_rpc and yalantinglibs: a binary encoding of C++ types.
    StructPack,
    /// FlatBuffers, read without decoding.
    FlatBuffers,
    /// Go's gob: a stream of a single value, preceded by the definitions of its types.
    Gob,
    /// Opaque bytes.
    Raw,
    /// A format that this framework cannot decode, by the protocol's number. Handlers of raw bytes accept rpcx's
    /// Thrift, 4; other numbers need a codec of the user.
    Other(u8),
}

impl Format {
    /// Returns its name: `protobuf`, `json`, `msgpack`.
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

/// JSON dialects, which agree on plain values and differ on protobuf messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Json {
    /// ProtoJSON, the JSON format of proto3: lowerCamelCase names, 64-bit integers as strings.
    #[default]
    Proto3,
    /// The JSON of brpc's json2pb: names as declared, 64-bit integers as numbers. Decoded like ProtoJSON: a value
    /// of the wrong type is an error, and both names of a field are accepted.
    Brpc,
    /// The same, decoded as by brpc: a value of the wrong type is dropped, and only the declared name of a field is
    /// accepted.
    BrpcLenient,
    /// Go's `encoding/json` of a struct, as used by rpcx: names as declared and matched case-insensitively, fields with
    /// zero values included.
    Go,
}

/// Compression of an encoded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Uncompressed.
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
    /// A number without a known decoder.
    Other(u8),
}

impl Compression {
    /// Returns its name: `none`, `gzip`, `zlib`.
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

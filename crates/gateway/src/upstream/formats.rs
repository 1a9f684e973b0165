//! Formats of protocols.

use polyrpc::{Client, Format, Json, Protocol};

/// Formats that callers of a protocol usually send.
pub(crate) fn usual_formats(protocol: Protocol) -> &'static [Format] {
    match protocol {
        Protocol::BaiduStd | Protocol::Grpc => &[Format::Protobuf],
        Protocol::Rpcx => &[Format::MessagePack, Format::Json(Json::Go), Format::Protobuf],
        Protocol::Http => &[Format::Json(Json::Brpc)],
        Protocol::NetRpc => &[Format::Gob],
        Protocol::RestRpc => &[Format::MessagePackArray, Format::RestRpc],
        Protocol::FbRpc => &[Format::FlatBuffers],
        _ => &[],
    }
}

/// The format in which a server receives the messages of callers that send `from`.
pub(super) fn choose(client: &Client, from: Format) -> Format {
    match client.protocol() {
        Protocol::Http => Format::Json(Json::Brpc),
        // An rpcx server decodes any format that its method's types support; the caller chose one of these.
        Protocol::Rpcx => match from {
            Format::Json(_) => Format::Json(Json::Go),
            Format::Protobuf | Format::MessagePack | Format::Raw | Format::Other(_) => from,
            _ => Format::MessagePack,
        },
        Protocol::NetRpc => client.only_format().unwrap_or(Format::Gob),
        Protocol::RestRpc => client.rest_rpc_version().map_or(Format::MessagePackArray, |it| it.format()),
        Protocol::FbRpc => Format::FlatBuffers,
        _ => Format::Protobuf,
    }
}

//! Mapping of content types to message formats.

use polyrpc_core::{Format, Json};

/// Returns the format of a body with this `Content-Type`, if it is known. Parameters are ignored. The types of
/// MessagePack and plain bytes are ours, the others brpc's.
pub(crate) fn format_of(content_type: &[u8]) -> Option<Format> {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let known = FORMATS.iter().find(|(name, _)| essence.eq_ignore_ascii_case(name.as_bytes()));
    known.map(|(_, format)| *format)
}

/// Returns the `Content-Type` of a format, if it has one.
pub(crate) fn content_type(format: Format) -> Option<&'static str> {
    match format {
        Format::Json(Json::Proto3) => Some(PROTO_JSON),
        Format::Json(_) => Some(JSON),
        _ => FORMATS.iter().find(|(_, known)| *known == format).map(|(name, _)| *name),
    }
}

/// The first name of each format is the one that is sent.
const FORMATS: [(&str, Format); 10] = [
    (JSON, Format::Json(Json::Brpc)),
    ("application/proto", Format::Protobuf),
    ("application/x-protobuf", Format::Protobuf),
    ("application/protobuf", Format::Protobuf),
    (PROTO_JSON, Format::Json(Json::Proto3)),
    ("application/proto-text", Format::ProtoText),
    ("application/msgpack", Format::MessagePack),
    ("application/x-msgpack", Format::MessagePack),
    ("application/x-flatbuffers", Format::FlatBuffers),
    (OCTETS, Format::Raw),
];

/// The types of [`FORMATS`], for a client that used another.
pub(crate) const ACCEPTED_TYPES: &str = "application/json, application/proto, application/x-protobuf, \
    application/protobuf, application/proto-json, application/proto-text, application/msgpack, \
    application/x-msgpack, application/x-flatbuffers, application/octet-stream";

/// Format of a body without a content type.
pub(crate) const DEFAULT: Format = Format::Json(Json::Brpc);

/// The `Content-Type` of JSON.
pub(crate) const JSON: &str = "application/json";
/// The `Content-Type` of ProtoJSON in brpc.
pub(crate) const PROTO_JSON: &str = "application/proto-json";
/// The `Content-Type` of opaque bytes.
pub(crate) const OCTETS: &str = "application/octet-stream";

/// Whether a body with this `Content-Type` cannot be a message, whatever brpc would do with it.
pub(crate) fn is_no_message(content_type: &[u8]) -> bool {
    [&b"image/"[..], b"audio/", b"video/", b"font/"]
        .iter()
        .any(|kind| content_type.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)))
}

/// Whether a content type belongs to gRPC, even if its format is unknown.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    content_type.trim_ascii_start().starts_with(b"application/grpc")
}

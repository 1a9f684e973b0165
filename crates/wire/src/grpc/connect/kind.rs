use polyrpc_core::{Format, Json};

use crate::grpc::framing::Framing;

/// How the messages of a Connect call are framed in the bodies of its request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each body is one message.
    Unary,
    /// Each body is any number of messages, each with a prefix.
    Stream,
    /// The request is one message, the response has one message per line (NDJSON).
    Lines,
    /// The request is one message, the response has one message per event (server-sent events).
    Events,
}

impl Kind {
    /// Returns the framing of a call of this kind.
    pub(crate) fn framing(self) -> &'static dyn Framing {
        static UNARY: Kind = Kind::Unary;
        static STREAM: Kind = Kind::Stream;
        static LINES: Kind = Kind::Lines;
        static EVENTS: Kind = Kind::Events;
        match self {
            Self::Unary => &UNARY,
            Self::Stream => &STREAM,
            Self::Lines => &LINES,
            Self::Events => &EVENTS,
        }
    }

    /// Whether each message of a response is text on a line of its own.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Lines | Self::Events)
    }
}

/// Returns the format with this name: the rest of `application/` or `application/connect+`, or `encoding` in a query.
pub(crate) fn format(name: &[u8]) -> Option<Format> {
    Some(match name {
        b"proto" => Format::Protobuf,
        b"json" => Format::Json(Json::Proto3),
        b"msgpack" => Format::MessagePack,
        b"flatbuffers" => Format::FlatBuffers,
        b"gob" => Format::Gob,
        b"raw" => Format::Raw,
        _ => return None,
    })
}

/// Returns the name of a format.
pub(crate) fn name(format: Format) -> &'static [u8] {
    match format {
        Format::Protobuf | Format::ProtoText | Format::RestRpc | Format::StructPack | Format::Other(_) => {
            b"proto"
        }
        Format::Json(_) => b"json",
        Format::MessagePack | Format::MessagePackArray => b"msgpack",
        Format::Gob => b"gob",
        Format::FlatBuffers => b"flatbuffers",
        Format::Raw => b"raw",
    }
}

/// Returns kind and format of a content type, ignoring its parameters; `None` if it is not one of Connect.
pub(crate) fn from_content_type(content_type: &[u8]) -> Option<(Kind, Format)> {
    let essence = content_type.split(|byte| *byte == b';').next()?.trim_ascii().to_ascii_lowercase();
    let name = essence.strip_prefix(b"application/")?;
    match name.strip_prefix(b"connect+") {
        Some(name) => Some((Kind::Stream, format(name)?)),
        None => Some((Kind::Unary, format(name)?)),
    }
}

/// Returns the text framing that the client accepts for the messages of a response, by its `Accept` field.
pub(crate) fn from_accept(accept: &[u8]) -> Option<Kind> {
    accept.split(|byte| *byte == b',').find_map(|element| {
        let essence = element.split(|byte| *byte == b';').next()?.trim_ascii();
        match () {
            () if essence.eq_ignore_ascii_case(NDJSON) => Some(Kind::Lines),
            () if essence.eq_ignore_ascii_case(EVENT_STREAM) => Some(Kind::Events),
            () => None,
        }
    })
}

/// Whether a content type is that of a stream, in whatever format.
pub(crate) fn is_stream(content_type: &[u8]) -> bool {
    content_type.get(..STREAM.len()).is_some_and(|start| start.eq_ignore_ascii_case(STREAM))
}

/// Prefix of the content types of streams.
pub(crate) const STREAM: &[u8] = b"application/connect+";

/// A shorter `Accept` field contains no known type.
pub(crate) const SHORTEST: usize = EVENT_STREAM.len();

pub(crate) const NDJSON: &[u8] = b"application/x-ndjson";
pub(crate) const EVENT_STREAM: &[u8] = b"text/event-stream";

/// The content types of a POST that Connect accepts, for a client that used another.
pub(crate) const ACCEPTED_POST: &str =
    "application/proto, application/json, application/connect+proto, application/connect+json";

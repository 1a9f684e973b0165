use polyrpc_core::session::NotFound;
use polyrpc_core::{Call, Format, Status};

use super::framing::{Framing, ResponseBody};
use super::status;

/// Encoding of gRPC's messages and status in an HTTP body.
///
/// All but [`Native`](Self::Native) are *web dialects*: they need no HTTP trailers, so that browsers can use them, over
/// every version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Plain messages; the status follows in HTTP trailers.
    #[default]
    Native,
    /// Plain messages, followed by the status in the body.
    Web,
    /// Like [`Web`](Self::Web), with the whole body in base64.
    WebText,
    /// A framing of its own.
    Framed(&'static dyn Framing),
}

impl Dialect {
    /// Splits the dialect from the rest of a content type after `application/grpc`.
    pub(crate) fn split(suffix: &[u8]) -> (Self, &[u8]) {
        [Self::WebText, Self::Web]
            .into_iter()
            .find_map(|dialect| Some((dialect, suffix.strip_prefix(dialect.name())?)))
            .unwrap_or((Self::Native, suffix))
    }

    /// Returns the content type of responses in this dialect. gRPC-Web always names the format, gRPC only if it is not
    /// the default (PROTOCOL-WEB.md of grpc/grpc).
    pub(crate) fn content_type(self, format: Format) -> Vec<u8> {
        if let Self::Framed(framing) = self {
            return framing.content_type(format);
        }
        let suffix = match format {
            Format::Protobuf | Format::ProtoText | Format::Other(_) if self != Self::Native => &b"+proto"[..],
            Format::Protobuf
            | Format::ProtoText
            | Format::RestRpc
            | Format::StructPack
            | Format::Other(_) => &b""[..],
            Format::Json(_) => b"+json",
            Format::MessagePack | Format::MessagePackArray => b"+msgpack",
            Format::Gob => b"+gob",
            Format::FlatBuffers => b"+flatbuffers",
            Format::Raw => b"+raw",
        };
        [b"application/grpc", self.name(), suffix].concat()
    }

    fn name(self) -> &'static [u8] {
        match self {
            Self::Native | Self::Framed(_) => b"",
            Self::Web => b"-web",
            Self::WebText => b"-web-text",
        }
    }

    /// Returns the framing, if it is neither gRPC's nor gRPC-Web's.
    pub(crate) fn framing(self) -> Option<&'static dyn Framing> {
        match self {
            Self::Framed(framing) => Some(framing),
            Self::Native | Self::Web | Self::WebText => None,
        }
    }

    /// Whether the body of a request is one message without a prefix.
    pub(crate) fn has_bare_request(self) -> bool {
        matches!(self, Self::Framed(framing) if framing.has_bare_request())
    }

    /// Returns the form of a response's body.
    pub(crate) fn response_body(self) -> ResponseBody {
        self.framing().map_or(ResponseBody::Prefixed, |framing| framing.response_body())
    }

    /// Whether a response that ends like this, and may have `begun`, is sent as a whole.
    pub(crate) fn is_whole(self, begun: bool, failure: Option<&Status>) -> bool {
        match self.response_body() {
            ResponseBody::Prefixed => false,
            ResponseBody::Text => !begun && failure.is_some(),
            ResponseBody::Message => true,
        }
    }

    /// Returns the failure of a call to an unknown service or method.
    #[cold]
    pub(crate) fn not_found(self, call: &Call<'_>, missing: NotFound) -> Status {
        match self.framing() {
            Some(framing) => framing.not_found(call, missing),
            None => status::not_found(call, missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use polyrpc_core::Json;

    use super::*;
    use crate::grpc::request::kind;

    #[test]
    fn every_content_type_round_trips() {
        for dialect in [Dialect::Native, Dialect::Web, Dialect::WebText] {
            for format in [Format::Protobuf, Format::Json(Json::Proto3), Format::MessagePack, Format::Raw] {
                assert_eq!(kind(&dialect.content_type(format)), Some((dialect, format)));
            }
        }
    }

    #[test]
    fn unknown_dialect_is_not_a_grpc_content_type() {
        let web = Some((Dialect::Web, Format::Protobuf));
        assert_eq!(kind(b"application/grpc-web+proto; charset=utf-8"), web);
        for content_type in
            ["application/grpc-webs", "application/grpc-web-texts", "application/grpc-web+thrift"]
        {
            assert_eq!(kind(content_type.as_bytes()), None, "{content_type}");
        }
    }
}

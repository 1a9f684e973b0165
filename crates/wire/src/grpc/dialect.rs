use polyrpc_core::Format;

use crate::http::connect_kind::Kind;

/// Encoding of gRPC's messages and status in an HTTP body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Plain messages; the status follows in HTTP trailers.
    #[default]
    Native,
    /// Plain messages, followed by the status in the body.
    Web,
    /// Like [`Web`](Self::Web), with the whole body in base64.
    WebText,
    /// Framing of Connect.
    Connect(Kind),
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
        if let Self::Connect(kind) = self {
            return kind.content_type(format);
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
            Self::Native => b"",
            Self::Web => b"-web",
            Self::WebText => b"-web-text",
            Self::Connect(_) => b"",
        }
    }

    /// Returns the framing of Connect, or `None` for another dialect.
    pub(crate) fn connect(self) -> Option<Kind> {
        match self {
            Self::Connect(kind) => Some(kind),
            Self::Native | Self::Web | Self::WebText => None,
        }
    }

    /// Whether the body of a request is one message without a prefix.
    pub(crate) fn is_sole(self) -> bool {
        matches!(self, Self::Connect(kind) if kind.is_sole())
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

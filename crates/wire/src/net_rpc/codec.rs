//! Codecs of a server's connections, and their detection from the first bytes.

use polyrpc_core::protocol::Parameters;
use polyrpc_core::{Detection, Format, Json};

/// Encoding of headers and bodies. Both sides must be configured alike: the wire format does not identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Codec {
    /// Go's own format, the default of `net/rpc`.
    #[default]
    Gob,
    /// JSON-RPC 1.0: `net/rpc/jsonrpc`.
    Json,
    /// MessagePack without framing (hashicorp/net-rpc-msgpackrpc), the default of the rpcx of 2016.
    MessagePack,
    /// Length-prefixed Protobuf (mars9/codec).
    Protobuf,
    /// Length-prefixed Gencode (net-rpc-gencode). Only its schema defines the content of a body: it is [`Format::Raw`].
    Gencode,
    /// Colfer; its bodies are [`Format::Raw`]. Implemented from a description, not tested against a peer.
    Colfer,
    /// BSON; its bodies are [`Format::Raw`]. Implemented from a description, not tested against a peer.
    Bson,
}

impl Codec {
    /// All codecs.
    pub const ALL: [Self; 7] =
        [Self::Gob, Self::Json, Self::MessagePack, Self::Protobuf, Self::Gencode, Self::Colfer, Self::Bson];

    /// Returns the name for users: `gob`, `json`, `msgpack`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gob => "gob",
            Self::Json => "json",
            Self::MessagePack => "msgpack",
            Self::Protobuf => "protobuf",
            Self::Gencode => "gencode",
            Self::Colfer => "colfer",
            Self::Bson => "bson",
        }
    }

    /// Returns the codec that the parameters of a URL select.
    pub fn selected_by(parameters: &Parameters) -> Self {
        let name = parameters.value("codec");
        Self::ALL.into_iter().find(|codec| name == Some(codec.as_str())).unwrap_or_default()
    }

    /// Returns the format of bodies.
    pub fn format(self) -> Format {
        match self {
            Self::Gob => Format::Gob,
            Self::Json => Format::Json(Json::Go),
            Self::MessagePack => Format::MessagePack,
            Self::Protobuf => Format::Protobuf,
            Self::Gencode | Self::Colfer | Self::Bson => Format::Raw,
        }
    }

    /// Whether this codec can carry a body in this format.
    pub(super) fn carries(self, format: Format) -> bool {
        match (self, format) {
            (Self::Json, Format::Json(_)) | (Self::Protobuf, Format::Raw) => true,
            (_, format) => format == self.format(),
        }
    }

    /// Detects the codec of a connection from its first bytes. The length-prefixed codecs may start with any byte, so
    /// that none of them is ever detected.
    pub(super) fn recognise(start: &[u8]) -> Detection<Self> {
        let blank = start.iter().take_while(|byte| is_blank(**byte)).count();
        match start.get(blank..) {
            _ if blank >= MAX_BLANK => Detection::Unknown,
            None | Some([]) => Detection::NeedMore,
            Some([b'{', ..]) => Detection::Is(Self::Json),
            Some(_) if blank > 0 => Detection::Unknown,
            Some([0x81..=0x8f]) => Detection::NeedMore,
            Some([0x81..=0x8f, 0xa0..=0xbf | 0xd9..=0xdb, ..]) => Detection::Is(Self::MessagePack),
            Some([length, id @ ..]) if DEFINITION.contains(length) => recognise_gob(id),
            Some(_) => Detection::Unknown,
        }
    }
}

/// A gob stream starts with the definition of the header's struct: a message long enough to contain its field names and
/// too short for a multi-byte length, the negated id of a type, then the field delta that leads to `StructT` in a
/// `wireType` (Go `encoding/gob/doc.go`).
fn recognise_gob(id: &[u8]) -> Detection<Codec> {
    let (lowest, rest) = match id {
        [] => return Detection::NeedMore,
        [id @ 0x7f, rest @ ..] => (*id, rest),
        [width @ 0xfc..=0xff, rest @ ..] => match rest.split_at_checked(width.wrapping_neg().into()) {
            Some(([.., lowest], rest)) => (*lowest, rest),
            _ => return Detection::NeedMore,
        },
        _ => return Detection::Unknown,
    };
    match rest {
        // A number whose lowest bit is not set is not negative.
        _ if lowest & 1 == 0 => Detection::Unknown,
        [] => Detection::NeedMore,
        [STRUCT_T, ..] => Detection::Is(Codec::Gob),
        _ => Detection::Unknown,
    }
}

/// Whether a byte is JSON white space.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Length of the message that defines the header: the field names alone take most of the minimum.
const DEFINITION: std::ops::RangeInclusive<u8> = 0x1c..=0x7f;

/// Field delta from before the first field to the third.
const STRUCT_T: u8 = 3;

/// Maximum white space before a JSON object for its connection to be detected.
const MAX_BLANK: usize = 16;

#[cfg(test)]
mod tests {
    use polyrpc_core::testing::hex;

    use super::*;
    use crate::net_rpc::DESCRIPTOR;

    #[test]
    fn url_selects_each_codec_by_name() {
        let codec = DESCRIPTOR.parameters[0];
        assert_eq!((codec.name, codec.values), ("codec", &Codec::ALL.map(Codec::as_str)[..]));
        for codec in Codec::ALL {
            let parameters =
                Parameters::parse(&format!("codec={}", codec.as_str()), "net-rpc", DESCRIPTOR.parameters);
            assert_eq!(Codec::selected_by(&parameters.unwrap()), codec);
        }
        assert_eq!(Codec::selected_by(&Parameters::new()), Codec::Gob);
    }

    #[test]
    fn codec_is_detected_by_the_first_bytes() {
        for (start, codec) in [
            (&hex("2e7f03")[..], Codec::Gob),
            (&hex("2fff8103"), Codec::Gob),
            (&hex("30fe01 0103"), Codec::Gob),
            (b"{", Codec::Json),
            (b" \r\n\t{", Codec::Json),
            (&hex("82a353"), Codec::MessagePack),
            (&hex("83d90d"), Codec::MessagePack),
        ] {
            assert_eq!(Codec::recognise(start), Detection::Is(codec), "{}", start.escape_ascii());
            for end in 0..start.len() - 1 {
                assert_ne!(Codec::recognise(&start[..end]), Detection::Unknown, "{}", start.escape_ascii());
            }
        }
    }

    #[test]
    fn other_first_bytes_match_no_codec() {
        for start in [
            &b"PRPC"[..],
            b"PRI * HTTP/2.0",
            b"[{",
            b" GET",
            b"                 {",
            &hex("0800"),
            &hex("2700000007"),
            &hex("2eff80"),
            &hex("2e80"),
            &hex("2e7f02"),
            &hex("2eff8003"),
            &hex("0b0a0941"),
            &hex("120941"),
            &hex("8080"),
            &hex("160301"),
        ] {
            assert_eq!(Codec::recognise(start), Detection::Unknown, "{}", start.escape_ascii());
        }
    }
}

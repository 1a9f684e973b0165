//! Struct with a field of every kind that Go's codecs handle specially.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::plain::Args;

/// Bytes, lists and maps may be missing, as Go's are when they are nil, and so may any field.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Rich {
    i8: i8,
    i: i64,
    u: u32,
    f32: f32,
    f: f64,
    s: String,
    by: Option<Binary>,
    l: Option<Vec<i64>>,
    m: Option<BTreeMap<String, i64>>,
    n: Args,
    p: Option<Args>,
    nil: Option<Args>,
    b: bool,
    t: Option<Time>,
}

/// Go's `[]byte`: base64 in JSON, the bin family in MessagePack.
#[derive(Debug, Clone, PartialEq)]
struct Binary(Bin);

impl Serialize for Binary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.serialize_str(&STANDARD.encode(&self.0.0)),
            false => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Binary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.is_human_readable() {
            true => {
                let text = String::deserialize(deserializer)?;
                STANDARD.decode(text).map(|bytes| Self(Bin(bytes))).map_err(D::Error::custom)
            }
            false => Bin::deserialize(deserializer).map(Self),
        }
    }
}

/// Plain bytes, whatever the format: within an extension rmp-serde forgets that it is not for people.
#[derive(Debug, Clone, PartialEq)]
struct Bin(Vec<u8>);

impl Serialize for Bin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(BinVisitor)
    }
}

struct BinVisitor;

impl Visitor<'_> for BinVisitor {
    type Value = Bin;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bin, E> {
        Ok(Bin(bytes.to_vec()))
    }
}

/// Go's `time.Time`: RFC 3339 in JSON, the timestamp extension in MessagePack. What came goes back, so
/// neither is looked into.
#[derive(Debug, Clone, PartialEq)]
enum Time {
    Text(String),
    Timestamp(Extension),
}

/// The name by which rmp-serde knows an extension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename = "_ExtStruct")]
struct Extension((i8, Bin));

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Timestamp(extension) => extension.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.is_human_readable() {
            true => String::deserialize(deserializer).map(Self::Text),
            false => Extension::deserialize(deserializer).map(Self::Timestamp),
        }
    }
}

#[cfg(test)]
mod tests {
    use polyrpc::codec::{Body, Codec, Serde};
    use polyrpc::{Format, Json};

    use super::Rich;

    fn echoed(format: Format, bytes: &[u8]) -> Vec<u8> {
        let rich: Rich = Serde::decode(Body::new(format, bytes.to_vec()), None).unwrap();
        Serde::encode(&rich, format, None).unwrap().to_vec()
    }

    #[test]
    fn json_comes_back_as_go_wrote_it() {
        let text = r#"{"I8":-3,"I":300,"U":70000,"F32":1.5,"F":2.25,"S":"héllo","By":"AQID","L":[1,-1,128,65536],"M":{"x":1},"N":{"A":7,"B":8},"P":{"A":1,"B":2},"Nil":null,"B":true,"T":"2023-11-14T22:13:20.000000005Z"}"#;
        assert_eq!(String::from_utf8(echoed(Format::Json(Json::Go), text.as_bytes())).unwrap(), text);
    }

    #[test]
    fn what_is_nil_in_go_stays_so_and_fields_may_be_left_out() {
        let nil = r#"{"I8":0,"I":0,"U":0,"F32":0.0,"F":0.0,"S":"","By":null,"L":null,"M":null,"N":{"A":0,"B":0},"P":null,"Nil":null,"B":false,"T":null}"#;
        for text in [nil, "{}"] {
            let back = echoed(Format::Json(Json::Go), text.as_bytes());
            assert_eq!(String::from_utf8(back).unwrap(), nil);
        }
        for bytes in [&b"\x80"[..], b"\x84\xa1L\xc0\xa1M\xc0\xa2By\xc0\xa1N\x80"] {
            let back = echoed(Format::MessagePack, bytes);
            for field in [&b"\xa2By\xc0"[..], b"\xa1L\xc0", b"\xa1M\xc0"] {
                assert!(back.windows(field.len()).any(|window| window == field), "{back:x?}");
            }
        }
    }

    #[test]
    fn messagepack_keeps_its_bytes_and_its_timestamp() {
        let mut bytes = Vec::new();
        for part in [
            &b"\x8e\xa2I8\xd0\xfd\xa1I\xcd\x01\x2c\xa1U\xce\x00\x01\x11\x70\xa3F32\xca\x3f\xc0\x00\x00"[..],
            b"\xa1F\xcb\x40\x02\x00\x00\x00\x00\x00\x00\xa1S\xa1h\xa2By\xc4\x03\x01\x02\x03\xa1L\x91\x01",
            b"\xa1M\x81\xa1x\x01\xa1N\x82\xa1A\x07\xa1B\x08\xa1P\xc0\xa3Nil\xc0\xa1B\xc3",
            b"\xa1T\xd7\xff\x00\x00\x00\x14\x65\x53\xf1\x00",
        ] {
            bytes.extend_from_slice(part);
        }
        let back = echoed(Format::MessagePack, &bytes);
        assert!(back.ends_with(b"\xa1T\xd7\xff\x00\x00\x00\x14\x65\x53\xf1\x00"), "{back:x?}");
        assert!(back.windows(8).any(|window| window == b"\xa2By\xc4\x03\x01\x02\x03"), "{back:x?}");
    }
}

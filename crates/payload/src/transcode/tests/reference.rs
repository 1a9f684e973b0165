//! The same messages through prost-reflect, which shares no code with this crate.

use polyrpc_core::protobuf::{put_tag, put_varint};
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value;

use super::*;
use crate::schema::Kind;

const PROTO3: Format = Format::Json(Json::Proto3);

struct Both {
    ours: Message,
    witness: MessageDescriptor,
}

impl Both {
    fn new(name: &str) -> Self {
        let set = compile(RICH);
        let witness = DescriptorPool::decode(set.as_slice()).unwrap();
        Self {
            ours: Pool::decode(&set).unwrap().message(name).unwrap(),
            witness: witness.get_message_by_name(name).unwrap(),
        }
    }

    fn decode(&self, bytes: &[u8]) -> DynamicMessage {
        DynamicMessage::decode(self.witness.clone(), bytes).unwrap()
    }

    #[track_caller]
    fn assert_same(&self, read: &[u8], expected: &DynamicMessage, from: &str) {
        let (read, expected) = (self.json(&self.decode(read)), self.json(expected));
        assert!(same_text(&read, &expected), "from {from}\n read {read}\nnot {expected}");
    }

    fn json(&self, message: &DynamicMessage) -> String {
        let mut out = serde_json::Serializer::new(Vec::new());
        message.serialize_with_options(&mut out, &Default::default()).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }
}

#[test]
fn random_messages_equal_those_of_prost_reflect_in_every_format() {
    let both = Both::new("rich.Rich");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..500 {
        let mut bytes = Vec::new();
        random.message(both.ours.pool(), &both.ours, &mut bytes, 4);
        let message = both.decode(&bytes);

        let json = both.json(&message);
        let ours = from(&both.ours, PROTO3, &bytes).unwrap();
        assert!(same_text(&json, &ours), "{json}\n{ours}");
        for json in [&json, &ours] {
            both.assert_same(&to(&both.ours, PROTO3, json).unwrap(), &message, json);
        }

        let text = message.to_text_format();
        both.assert_same(&to(&both.ours, Format::ProtoText, &text).unwrap(), &message, &text);
        let ours = from(&both.ours, Format::ProtoText, &bytes).unwrap();
        let read = DynamicMessage::parse_text_format(both.witness.clone(), &ours).unwrap();
        both.assert_same(&read.encode_to_vec(), &message, &ours);

        for format in [Format::Json(Json::Brpc), Format::Json(Json::Go), Format::MessagePack] {
            let written = from_protobuf(&both.ours, format, &bytes).unwrap();
            let read = to_protobuf(&both.ours, format, &written).unwrap();
            both.assert_same(&read, &message, &format!("{format:?} {}", String::from_utf8_lossy(&written)));
        }
    }
}

#[test]
fn well_known_messages_equal_those_of_prost_reflect() {
    let both = Both::new("rich.WellKnown");
    for json in [
        r#"{"any":{"@type":"type.googleapis.com/rich.Scalars","fInt32":1}}"#,
        r#"{"any":{"@type":"type.googleapis.com/google.protobuf.Timestamp","value":"1970-01-01T00:00:00.123Z"}}"#,
        r#"{"duration":"-1.500s","empty":{},"mask":"fooBar,a.b"}"#,
        r#"{"struct":{"a":null,"b":1.5,"c":"x","d":true,"e":{"f":[1,[]]},"g":[]},"value":[null]}"#,
        r#"{"int64":"-1","string":"x","bytes":"AA==","double":0.5,"bool":true}"#,
        r#"{"values":[null,1],"byName":{"a":null,"b":2},"times":["1970-01-01T00:00:00Z"]}"#,
    ] {
        let mut reader = serde_json::Deserializer::from_str(json);
        let message = DynamicMessage::deserialize(both.witness.clone(), &mut reader).unwrap();
        let bytes = to(&both.ours, PROTO3, json).unwrap();
        both.assert_same(&bytes, &message, json);
        let written = both.json(&message);
        let ours = from(&both.ours, PROTO3, &bytes).unwrap();
        assert!(same_text(&written, &ours), "{written}\n{ours}");
    }
}

#[test]
fn numbers_hard_to_round_round_trip() {
    let both = Both::new("rich.Scalars");
    for (float, double) in [
        (f32::MIN_POSITIVE, f64::MIN_POSITIVE),
        (f32::MAX, f64::MAX),
        (f32::from_bits(1), f64::from_bits(1)),
        (16_777_217.0, 9_007_199_254_740_993.0),
        (-0.0, -0.0),
        (f32::INFINITY, f64::NEG_INFINITY),
    ] {
        let mut bytes = b"\x09".to_vec();
        bytes.extend_from_slice(&double.to_le_bytes());
        bytes.push(0x15);
        bytes.extend_from_slice(&float.to_le_bytes());
        for format in [PROTO3, Format::ProtoText, Format::Json(Json::Brpc), Format::MessagePack] {
            let written = from_protobuf(&both.ours, format, &bytes).unwrap();
            let read = to_protobuf(&both.ours, format, &written).unwrap();
            both.assert_same(
                &read,
                &both.decode(&bytes),
                &format!("{format:?} {}", String::from_utf8_lossy(&written)),
            );
        }
    }
}

fn same_text(a: &str, b: &str) -> bool {
    same(&serde_json::from_str(a).unwrap(), &serde_json::from_str(b).unwrap())
}

/// Whether two values are equal, with `3` equal to `3.0`. serde_json's result for a double may differ in some of the
/// last bits.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || near(a.as_f64(), b.as_f64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn near(a: Option<f64>, b: Option<f64>) -> bool {
    // A float may have two shortest notations.
    a.zip(b).is_some_and(|(a, b)| (a - b).abs() <= a.abs() * 1e-14 || a as f32 == b as f32)
}

#[test]
fn numbers_round_trip_exactly_in_every_format() {
    let both = Both::new("rich.Scalars");
    let mut random = Random(7);
    for _ in 0..5000 {
        let mut bytes = b"\x09".to_vec();
        random.scalar(Kind::Double, &mut bytes);
        bytes.push(0x15);
        random.scalar(Kind::Float, &mut bytes);
        bytes.push(0x20);
        random.scalar(Kind::Int64, &mut bytes);
        bytes.push(0x30);
        random.scalar(Kind::Uint64, &mut bytes);
        for format in
            [PROTO3, Format::ProtoText, Format::Json(Json::Brpc), Format::Json(Json::Go), Format::MessagePack]
        {
            let written = from_protobuf(&both.ours, format, &bytes).unwrap();
            let again = from_protobuf(
                &both.ours,
                Format::MessagePack,
                &to_protobuf(&both.ours, format, &written).unwrap(),
            );
            let packed = from_protobuf(&both.ours, Format::MessagePack, &bytes);
            assert_eq!(again, packed, "{format:?} {}", String::from_utf8_lossy(&written));
        }
    }
}

/// xorshift64, and messages generated with it.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    /// Small and large numbers alike.
    fn bits(&mut self) -> u64 {
        let shift = self.below(64);
        let bits = self.next() >> shift;
        if self.below(4) == 0 { bits.wrapping_neg() } else { bits }
    }

    fn message(&mut self, pool: &Pool, of: &crate::schema::MessageType, out: &mut Vec<u8>, depth: usize) {
        let mut oneof = false;
        for field in of.fields() {
            let is_entry = of.is_map_entry();
            if !is_entry && self.below(3) != 0
                || field.oneof().is_some() && std::mem::replace(&mut oneof, true)
            {
                continue;
            }
            let count = if field.is_repeated() { self.below(4) } else { 1 };
            for _ in 0..count {
                match field.kind() {
                    Kind::Message(_) if depth == 0 && !is_entry => {}
                    Kind::Message(id) => {
                        let mut inner = Vec::new();
                        if depth > 0 {
                            self.message(pool, &pool.message_at(id), &mut inner, depth - 1);
                        }
                        put_tag(out, field.number(), polyrpc_core::protobuf::WireType::Bytes);
                        put_varint(out, inner.len() as u64);
                        out.extend_from_slice(&inner);
                    }
                    kind => {
                        put_tag(out, field.number(), kind.wire_type());
                        self.scalar(kind, out);
                    }
                }
            }
        }
    }

    fn scalar(&mut self, kind: Kind, out: &mut Vec<u8>) {
        match kind {
            Kind::Double => {
                let value = f64::from_bits(self.next());
                out.extend_from_slice(&(if value.is_finite() { value } else { 1.5 }).to_le_bytes());
            }
            Kind::Float => {
                let value = f32::from_bits(self.next() as u32);
                out.extend_from_slice(&(if value.is_finite() { value } else { 1.5 }).to_le_bytes());
            }
            Kind::Fixed32 | Kind::Sfixed32 => out.extend_from_slice(&(self.bits() as u32).to_le_bytes()),
            Kind::Fixed64 | Kind::Sfixed64 => out.extend_from_slice(&self.bits().to_le_bytes()),
            Kind::Bool => out.push(self.below(2) as u8),
            Kind::Int32 => put_varint(out, i64::from(self.bits() as i32) as u64),
            Kind::Uint32 | Kind::Sint32 => put_varint(out, (self.bits() as u32).into()),
            Kind::Enum(_) => put_varint(out, [0, 1, 2, -3_i64 as u64][self.below(4) as usize]),
            Kind::String => {
                let text: String = (0..self.below(6)).map(|_| self.character()).collect();
                put_varint(out, text.len() as u64);
                out.extend_from_slice(text.as_bytes());
            }
            Kind::Bytes => {
                let bytes: Vec<_> = (0..self.below(200)).map(|_| self.next() as u8).collect();
                put_varint(out, bytes.len() as u64);
                out.extend_from_slice(&bytes);
            }
            _ => put_varint(out, self.bits()),
        }
    }

    fn character(&mut self) -> char {
        match self.below(4) {
            0 => ['"', '\\', '\n', '\u{0}', '\u{1f}', '\u{7f}', '<', '\u{2028}', 'é', '😀']
                [self.below(10) as usize],
            1 => char::from_u32(self.below(0xd800) as u32).unwrap(),
            _ => char::from(b'a' + self.below(26) as u8),
        }
    }
}

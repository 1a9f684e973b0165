//! Random messages of a `.proto` as the transcoder writes them in JSON, for a program that compares them with the schema.
//!
//! ```text
//! polyrpc-messages kinds.proto kinds.All proto3 1000
//! ```
//!
//! The first line is the JSON Schema of the message; each further line is a message. The seed does not change.

use std::path::PathBuf;
use std::process::ExitCode;

use polyrpc::payload::schema::{Field, Kind, Message, WellKnown};
use polyrpc::payload::transcode;
use polyrpc::{Format, Json};
use polyrpc_core::protobuf::{WireType, put_tag, put_varint};
use polyrpc_describe::ProtoFiles;
use polyrpc_transform::SchemaSource;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let printed = match arguments.as_slice() {
        [file, name, dialect, count] => print(file, name, dialect, count),
        _ => Err("usage: polyrpc-messages FILE MESSAGE proto3|brpc COUNT".to_owned()),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn print(file: &str, name: &str, dialect: &str, count: &str) -> Result<(), String> {
    let dialect = match dialect {
        "proto3" => Json::Proto3,
        "brpc" => Json::Brpc,
        other => return Err(format!("there is no dialect `{other}`")),
    };
    let count: usize = count.parse().map_err(|_| format!("{count} is no count"))?;
    let source =
        SchemaSource::read_proto(&[PathBuf::from(file)], &[]).map_err(|error| error.text().to_owned())?;
    let message = source.pool().message(name).ok_or_else(|| format!("there is no message `{name}`"))?;
    let files = ProtoFiles::new(source.pool().clone());
    println!("{}", files.message_schema(message.clone(), dialect)?);
    let mut random = Random(0x2026_1126);
    for n in 0..count {
        let bytes = random.message(&message, 3);
        let json = transcode::from_protobuf(&message, Format::Json(dialect), &bytes);
        let json = json.map_err(|error| format!("message {n}: {error}"))?;
        println!("{}", String::from_utf8(json).map_err(|error| error.to_string())?);
    }
    Ok(())
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A message in the binary format; `depth`: how far messages may nest in it.
    fn message(&mut self, message: &Message, depth: usize) -> Vec<u8> {
        let mut out = Vec::new();
        match message.well_known() {
            Some(WellKnown::Timestamp) => {
                self.seconds(&mut out, -62_135_596_800, 253_402_300_799, true);
                return out;
            }
            Some(WellKnown::Duration) => {
                self.seconds(&mut out, 0, 315_576_000_000, false);
                return out;
            }
            Some(WellKnown::FieldMask) => {
                put_bytes(&mut out, 1, b"user.display_name");
                return out;
            }
            Some(WellKnown::Any) => {
                put_bytes(&mut out, 1, b"type.googleapis.com/google.protobuf.Duration");
                return out;
            }
            Some(WellKnown::Value) => {
                let text = self.text();
                put_bytes(&mut out, 3, text.as_bytes());
                return out;
            }
            _ => {}
        }
        for field in message.fields() {
            // ProtoJSON has no form for a `Value` that is not set, and an entry of a map may be one.
            let is_needed = field.is_required() || message.is_map_entry();
            let count = match (is_needed, field.is_repeated()) {
                (true, _) => 1,
                (false, true) => self.below(4).saturating_sub(1),
                (false, false) => self.below(2),
            };
            for _ in 0..count {
                self.field(message, field, depth, &mut out);
            }
        }
        out
    }

    fn seconds(&mut self, out: &mut Vec<u8>, least: i64, most: i64, any: bool) {
        let span = u64::try_from(most - least).unwrap_or(u64::MAX);
        let seconds = least + i64::try_from(self.below(span)).unwrap_or_default();
        put_tag(out, 1, WireType::Varint);
        put_varint(out, seconds as u64);
        if any || seconds > 0 {
            put_tag(out, 2, WireType::Varint);
            put_varint(out, self.below(1_000_000_000));
        }
    }

    fn field(&mut self, message: &Message, field: &Field, depth: usize, out: &mut Vec<u8>) {
        let number = field.number();
        let bits = match self.below(3) {
            0 => self.below(3),
            1 => u64::MAX - self.below(3),
            _ => self.next(),
        };
        match field.kind() {
            Kind::Double => fixed(out, number, WireType::Fixed64, &self.double().to_le_bytes()),
            Kind::Float => fixed(out, number, WireType::Fixed32, &(self.double() as f32).to_le_bytes()),
            Kind::Fixed64 | Kind::Sfixed64 => fixed(out, number, WireType::Fixed64, &bits.to_le_bytes()),
            Kind::Fixed32 | Kind::Sfixed32 => {
                fixed(out, number, WireType::Fixed32, &(bits as u32).to_le_bytes())
            }
            Kind::Bool => varint(out, number, bits & 1),
            Kind::Enum(id) => {
                // A number without a name too.
                let values = message.pool().enum_type(id).values();
                let at = usize::try_from(self.below(values.len() as u64 + 1)).unwrap_or_default();
                let value = values.get(at).map_or(77, |value| value.number());
                varint(out, number, i64::from(value) as u64);
            }
            Kind::Int32 | Kind::Sint32 => varint(out, number, i64::from(bits as i32) as u64),
            Kind::Uint32 => varint(out, number, u64::from(bits as u32)),
            Kind::Int64 | Kind::Sint64 | Kind::Uint64 => varint(out, number, bits),
            Kind::String => put_bytes(out, number, self.text().as_bytes()),
            Kind::Bytes => put_bytes(out, number, &bits.to_le_bytes()),
            Kind::Message(id) | Kind::Group(id) => {
                let inner = message.pool().message_at(id);
                if depth == 0 && !field.is_required() && !inner.is_map_entry() && inner.well_known().is_none()
                {
                    return;
                }
                // The value of a map's last entry is an empty message: there is always an end.
                let bytes = match depth == 0 && message.is_map_entry() && inner.well_known().is_none() {
                    true => Vec::new(),
                    false => self.message(&inner, depth.saturating_sub(1)),
                };
                match field.kind() {
                    Kind::Group(_) => {
                        put_tag(out, number, WireType::StartGroup);
                        out.extend(bytes);
                        put_tag(out, number, WireType::EndGroup);
                    }
                    _ => put_bytes(out, number, &bytes),
                }
            }
        }
    }

    fn double(&mut self) -> f64 {
        match self.below(8) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => -0.0,
            4 => 1e300,
            5 => self.below(1_000) as f64,
            _ => self.next() as f64 / 1e12,
        }
    }

    fn text(&mut self) -> String {
        ["", "plain", "\"quoted\"\\", "\u{0}\n\t", "grün 日本 🦀", "</script>\u{2028}"]
            [usize::try_from(self.below(6)).unwrap_or_default()]
        .to_owned()
    }
}

fn varint(out: &mut Vec<u8>, number: u32, value: u64) {
    put_tag(out, number, WireType::Varint);
    put_varint(out, value);
}

fn fixed(out: &mut Vec<u8>, number: u32, wire: WireType, bytes: &[u8]) {
    put_tag(out, number, wire);
    out.extend_from_slice(bytes);
}

fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, WireType::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

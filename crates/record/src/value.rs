//! Messages of any format as trees, so that they can be compared and shown.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc_core::Format;
use polyrpc_core::protobuf::{Reader, WireType};
use polyrpc_payload::msgpack::{self, Token};
use polyrpc_payload::schema::{Field, Kind, Message, MessageType, Pool};
use polyrpc_payload::{gob, transcode};

/// A message, or a part of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// A text, or the name of an enum's value.
    Text(String),
    /// Bytes, or a message without a schema.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Self>),
    /// Fields or entries, in the order of the message. A field that the schema does not declare, or declares with another
    /// wire type, is called `#` and its number.
    Map(Vec<(String, Self)>),
}

/// Why a message cannot be decoded as a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable(String);

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Undecodable {}

impl Undecodable {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl Value {
    /// Decodes a message: by its declaration, or as a self-describing format.
    ///
    /// # Errors
    ///
    /// If the bytes are malformed, or have no schema.
    pub fn decode(format: Format, bytes: &[u8], schema: Option<&Message>) -> Result<Self, Undecodable> {
        let malformed = |why: &dyn fmt::Display| Undecodable(format!("it is not {}: {why}", format.as_str()));
        match (format, schema) {
            (Format::Protobuf, Some(message)) => from_protobuf(message.pool(), message, bytes, MAX_DEPTH)
                .ok_or_else(|| malformed(&message.full_name())),
            (Format::Json(_) | Format::ProtoText, Some(message)) => {
                let protobuf =
                    transcode::to_protobuf(message, format, bytes).map_err(|error| malformed(&error))?;
                let tree = from_protobuf(message.pool(), message, &protobuf, MAX_DEPTH);
                tree.ok_or_else(|| malformed(&message.full_name()))
            }
            (Format::Json(_), None) if bytes.trim_ascii().is_empty() => Ok(Self::Null),
            (Format::Json(_), None) => {
                serde_json::from_slice(bytes).map(from_json).map_err(|error| malformed(&error))
            }
            (Format::MessagePack | Format::MessagePackArray, _) if bytes.is_empty() => Ok(Self::Null),
            (Format::MessagePack | Format::MessagePackArray, _) => {
                let mut reader = msgpack::Reader::new(bytes);
                let tree = from_msgpack(&mut reader, MAX_DEPTH).filter(|_| reader.is_empty());
                tree.ok_or_else(|| malformed(&"it is malformed"))
            }
            (Format::Gob, _) => {
                let json = gob::to_json(bytes).map_err(|error| malformed(&error))?;
                serde_json::from_str(&json).map(from_json).map_err(|error| malformed(&error))
            }
            _ => Err(Undecodable(format!("the {} messages of this method have no schema", format.as_str()))),
        }
    }

    /// The same, or the bytes if there is no tree.
    pub fn decode_or_bytes(format: Format, bytes: &[u8], schema: Option<&Message>) -> Self {
        Self::decode(format, bytes, schema).unwrap_or_else(|_| Self::Bytes(bytes.to_vec()))
    }

    /// Whether it is the default of an unset field: nothing, 0, false, an empty text, list or map.
    pub fn is_default(&self) -> bool {
        match self {
            Self::Null | Self::Bool(false) | Self::Integer(0) => true,
            Self::Float(number) => *number == 0.0,
            Self::Text(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.iter().all(|(_, value)| value.is_default()),
            Self::Bool(true) | Self::Integer(_) => false,
        }
    }

    /// Converts to JSON; bytes become base64, and whole numbers beyond 64 bits text.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Null => Json::Null,
            Self::Bool(truth) => Json::Bool(*truth),
            Self::Integer(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ => Json::String(number.to_string()),
            },
            Self::Float(number) => {
                serde_json::Number::from_f64(*number).map_or_else(|| number.to_string().into(), Json::Number)
            }
            Self::Text(text) => text.as_str().into(),
            Self::Bytes(bytes) => STANDARD.encode(bytes).into(),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Map(entries) => {
                entries.iter().map(|(name, value)| (name.clone(), value.to_json())).collect()
            }
        }
    }
}

/// JSON on one line, with names in the order of the message.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(items) => {
                f.write_str("[")?;
                for (n, item) in items.iter().enumerate() {
                    f.write_str(if n > 0 { "," } else { "" })?;
                    item.fmt(f)?;
                }
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("{")?;
                for (n, (name, value)) in entries.iter().enumerate() {
                    f.write_str(if n > 0 { "," } else { "" })?;
                    write!(f, "{}:{value}", serde_json::Value::from(name.as_str()))?;
                }
                f.write_str("}")
            }
            plain => plain.to_json().fmt(f),
        }
    }
}

fn from_json(json: serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), ..) => Value::Integer(whole.into()),
            (_, Some(whole), _) => Value::Integer(whole.into()),
            (.., Some(float)) => Value::Float(float),
            _ => Value::Text(number.to_string()),
        },
        Json::String(text) => Value::Text(text),
        Json::Array(items) => Value::List(items.into_iter().map(from_json).collect()),
        Json::Object(entries) => {
            Value::Map(entries.into_iter().map(|(name, value)| (name, from_json(value))).collect())
        }
    }
}

fn from_msgpack(reader: &mut msgpack::Reader<'_>, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    Some(match reader.next().ok()? {
        Token::Nil => Value::Null,
        Token::Bool(truth) => Value::Bool(truth),
        Token::Unsigned(number) => Value::Integer(number.into()),
        Token::Negative(number) => Value::Integer(number.into()),
        Token::F32(number) => Value::Float(number.into()),
        Token::F64(number) => Value::Float(number),
        Token::Str(text) => text_or_bytes(text),
        Token::Bin(bytes) => Value::Bytes(bytes.to_vec()),
        Token::Ext(kind, bytes) => Value::Map(vec![
            ("extension".to_owned(), Value::Integer(kind.into())),
            ("data".to_owned(), Value::Bytes(bytes.to_vec())),
        ]),
        // The sender announces the counts, so memory grows only as elements arrive.
        Token::Array(count) => {
            let mut items = Vec::new();
            for _ in 0..count {
                items.push(from_msgpack(reader, depth)?);
            }
            Value::List(items)
        }
        Token::Map(count) => {
            let mut entries = Vec::new();
            for _ in 0..count {
                let key = from_msgpack(reader, depth)?;
                let key = match key {
                    Value::Text(text) => text,
                    other => other.to_string(),
                };
                entries.push((key, from_msgpack(reader, depth)?));
            }
            Value::Map(entries)
        }
    })
}

fn text_or_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::Text(text.to_owned()),
        Err(_) => Value::Bytes(bytes.to_vec()),
    }
}

fn from_protobuf(pool: &Pool, message: &MessageType, bytes: &[u8], depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let mut entries: Vec<(String, Value)> = Vec::new();
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let (number, wire) = reader.tag()?;
        match message.field(number).filter(|field| accepts(field, wire)) {
            Some(field) => known_field(pool, field, wire, &mut reader, depth, &mut entries)?,
            // The search for earlier values of the field must not become slow.
            None if entries.len() > MAX_FIELDS => return None,
            None => {
                let value = unknown_value(&mut reader, number, wire)?;
                append(&mut entries, format!("#{number}"), value);
            }
        }
    }
    Some(Value::Map(entries))
}

/// Whether a value of this wire type can be the field's. If not, it counts as an unknown field, as in every parser.
pub(crate) fn accepts(field: &Field, wire: WireType) -> bool {
    let is_packed = wire == WireType::Bytes && field.is_repeated() && field.kind().is_packable();
    is_packed || wire == field.kind().wire_type()
}

/// Reads a value of a wire type that the field [accepts].
fn known_field(
    pool: &Pool,
    field: &Field,
    wire: WireType,
    reader: &mut Reader<'_>,
    depth: usize,
    entries: &mut Vec<(String, Value)>,
) -> Option<()> {
    let kind = field.kind();
    if wire == WireType::Bytes && kind.is_packable() {
        let mut packed = Reader::new(reader.bytes()?);
        let mut items = Vec::new();
        while !packed.is_empty() {
            items.push(scalar(pool, kind, &mut packed)?);
        }
        with_list(entries, field.name(), |list| list.extend(items));
        return Some(());
    }
    let value = match kind {
        Kind::Message(id) => from_protobuf(pool, &pool.message_at(id), reader.bytes()?, depth)?,
        Kind::Group(id) => from_protobuf(pool, &pool.message_at(id), reader.group(field.number())?, depth)?,
        _ => scalar(pool, kind, reader)?,
    };
    if field.is_map() {
        let key = pool.message_at(kind.message()?).field(1)?.kind();
        append_map_entry(entries, field.name(), value, key);
        return Some(());
    }
    match field.is_repeated() {
        true => with_list(entries, field.name(), |list| list.push(value)),
        // The last value counts, as in every parser.
        false => match entries.iter_mut().find(|(name, _)| name == field.name()) {
            Some((_, old)) => *old = value,
            None => entries.push((field.name().to_owned(), value)),
        },
    }
    Some(())
}

fn with_list(entries: &mut Vec<(String, Value)>, name: &str, add: impl FnOnce(&mut Vec<Value>)) {
    if !entries.iter().any(|(there, _)| there == name) {
        entries.push((name.to_owned(), Value::List(Vec::new())));
    }
    if let Some((_, Value::List(items))) = entries.iter_mut().find(|(there, _)| there == name) {
        add(items);
    }
}

/// `kind`: the type of the map's keys.
fn append_map_entry(entries: &mut Vec<(String, Value)>, name: &str, entry: Value, kind: Kind) {
    let Value::Map(mut entry) = entry else { return };
    let mut take = |wanted: &str| {
        let at = entry.iter().position(|(name, _)| name == wanted)?;
        Some(entry.swap_remove(at).1)
    };
    let key = match take("key") {
        Some(Value::Text(text)) => text,
        Some(other) => other.to_string(),
        None => default_key(kind).to_owned(),
    };
    let value = take("value").unwrap_or(Value::Null);
    if !entries.iter().any(|(there, _)| there == name) {
        entries.push((name.to_owned(), Value::Map(Vec::new())));
    }
    if let Some((_, Value::Map(map))) = entries.iter_mut().find(|(there, _)| there == name) {
        map.push((key, value));
    }
}

/// Returns the key of a map's entry that has none, as in protobuf's JSON.
pub(crate) fn default_key(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "",
        Kind::Bool => "false",
        _ => "0",
    }
}

/// Adds a value of an unknown field, which may be repeated.
fn append(entries: &mut Vec<(String, Value)>, name: String, value: Value) {
    match entries.iter_mut().find(|(there, _)| *there == name) {
        None => entries.push((name, value)),
        Some((_, Value::List(items))) => items.push(value),
        Some((_, old)) => {
            let first = std::mem::replace(old, Value::Null);
            *old = Value::List(vec![first, value]);
        }
    }
}

fn unknown_value(reader: &mut Reader<'_>, number: u32, wire: WireType) -> Option<Value> {
    Some(match wire {
        WireType::Varint => Value::Integer(reader.varint()?.into()),
        WireType::Fixed64 => Value::Integer(reader.fixed64()?.into()),
        WireType::Fixed32 => Value::Integer(reader.fixed32()?.into()),
        WireType::Bytes => text_or_bytes(reader.bytes()?),
        WireType::StartGroup => Value::Bytes(reader.group(number)?.to_vec()),
        WireType::EndGroup => return None,
    })
}

/// Reads a value of this type, which is neither a message nor a list.
pub(crate) fn scalar(pool: &Pool, kind: Kind, reader: &mut Reader<'_>) -> Option<Value> {
    let zigzag = |number: u64| i128::from((number >> 1) as i64 ^ -((number & 1) as i64));
    Some(match kind {
        Kind::Double => Value::Float(f64::from_bits(reader.fixed64()?)),
        Kind::Float => Value::Float(f32::from_bits(reader.fixed32()?).into()),
        Kind::Int32 => Value::Integer((reader.varint()? as i32).into()),
        Kind::Int64 => Value::Integer((reader.varint()? as i64).into()),
        Kind::Uint32 => Value::Integer((reader.varint()? as u32).into()),
        Kind::Uint64 => Value::Integer(reader.varint()?.into()),
        Kind::Sint32 => Value::Integer(zigzag((reader.varint()? as u32).into())),
        Kind::Sint64 => Value::Integer(zigzag(reader.varint()?)),
        Kind::Fixed32 => Value::Integer(reader.fixed32()?.into()),
        Kind::Fixed64 => Value::Integer(reader.fixed64()?.into()),
        Kind::Sfixed32 => Value::Integer((reader.fixed32()? as i32).into()),
        Kind::Sfixed64 => Value::Integer((reader.fixed64()? as i64).into()),
        Kind::Bool => Value::Bool(reader.varint()? != 0),
        Kind::String => text_or_bytes(reader.bytes()?),
        Kind::Bytes => Value::Bytes(reader.bytes()?.to_vec()),
        Kind::Enum(id) => {
            let number = reader.varint()? as i32;
            match pool.enum_type(id).name(number) {
                // The zero value is the default of an unset field.
                _ if number == 0 => Value::Integer(0),
                Some(name) => Value::Text(name.to_owned()),
                None => Value::Integer(number.into()),
            }
        }
        Kind::Message(_) | Kind::Group(_) => return None,
    })
}

/// Nesting limit of messages, as in every peer's parser.
const MAX_DEPTH: usize = 100;
/// Maximum number of different fields of a message that its schema does not declare.
const MAX_FIELDS: usize = 10_000;

#[cfg(test)]
mod tests {
    use polyrpc_core::Json;
    use polyrpc_payload::schema::testing::pool;

    use super::*;

    const PROTO: &str = r#"
        syntax = "proto3";
        message Order {
          enum State { NEW = 0; PAID = 1; }
          message Item { string name = 1; double price = 2; }
          int64 id = 1;
          repeated Item items = 2;
          map<string, int32> counts = 3;
          State state = 4;
          bytes raw = 5;
          repeated sint32 steps = 6;
          optional bool flag = 7;
        }
    "#;

    const JSON: &str = r#"{"id":"9007199254740993","items":[{"name":"a","price":1.5},{"name":"b"}],
        "counts":{"x":1,"y":-2},"state":"PAID","raw":"AAE=","steps":[-1,2],"flag":true}"#;

    #[test]
    fn formats_of_the_same_message_have_the_same_tree() {
        let pool = pool(PROTO);
        let order = pool.message("Order").unwrap();
        let json = Format::Json(Json::Proto3);
        let protobuf = transcode::to_protobuf(&order, json, JSON.as_bytes()).unwrap();
        let tree = Value::decode(Format::Protobuf, &protobuf, Some(&order)).unwrap();
        assert_eq!(Value::decode(json, JSON.as_bytes(), Some(&order)).unwrap(), tree);
        assert_eq!(
            tree.to_string(),
            concat!(
                r#"{"id":9007199254740993,"items":[{"name":"a","price":1.5},{"name":"b"}],"#,
                r#""counts":{"x":1,"y":-2},"state":"PAID","raw":"AAE=","steps":[-1,2],"flag":true}"#
            )
        );
    }

    #[test]
    fn absent_key_of_a_map_is_the_default_of_its_type() {
        let pool = pool(
            r#"syntax = "proto3"; message Maps { map<sint64, string> n = 1; map<bool, string> b = 2; map<string, string> s = 3; }"#,
        );
        let maps = pool.message("Maps").unwrap();
        let entries = b"\x0a\x03\x12\x01x\x12\x03\x12\x01y\x1a\x03\x12\x01z";
        let tree = Value::decode(Format::Protobuf, entries, Some(&maps)).unwrap();
        assert_eq!(tree.to_string(), r#"{"n":{"0":"x"},"b":{"false":"y"},"s":{"":"z"}}"#);
    }

    #[test]
    fn fields_that_are_not_declared_are_kept_by_number() {
        let pool = pool(r#"syntax = "proto3"; message Empty {}"#);
        let empty = pool.message("Empty").unwrap();
        let tree = Value::decode(Format::Protobuf, b"\x08\x05\x12\x02hi\x12\x02ho", Some(&empty)).unwrap();
        assert_eq!(tree.to_string(), r##"{"#1":5,"#2":["hi","ho"]}"##);
    }

    #[test]
    fn fields_of_another_wire_type_than_declared_are_kept_by_number() {
        let pool = pool(PROTO);
        let order = pool.message("Order").unwrap();
        for (bytes, want) in [
            // The number, as 4 bytes and as a list.
            (&b"\x0d\x05\0\0\0"[..], r##"{"#1":5}"##),
            (b"\x0a\x02hi", r##"{"#1":"hi"}"##),
            // An item, a map's entry and bytes, as varints.
            (b"\x10\x05\x18\x06\x28\x07", r##"{"#2":5,"#3":6,"#5":7}"##),
            // An item as a group.
            (b"\x13\x08\x01\x14", r##"{"#2":"CAE="}"##),
            // An element of a list.
            (b"\x30\x01\x35\x05\0\0\0\x32\x01\x04", r##"{"steps":[-1,2],"#6":5}"##),
            // Key and value of a map's entry.
            (b"\x1a\x04\x08\x05\x10\x06", r##"{"counts":{"":6}}"##),
            (b"\x1a\x06\x0a\x01x\x12\x01y", r##"{"counts":{"x":null}}"##),
        ] {
            let tree = Value::decode(Format::Protobuf, bytes, Some(&order));
            assert_eq!(tree.unwrap().to_string(), want, "{bytes:x?}");
        }
    }

    #[test]
    fn self_describing_formats_need_no_schema() {
        let tree = Value::decode(Format::MessagePack, b"\x82\xa1C\x38\xa1D\xc4\x01\xff", None).unwrap();
        assert_eq!(tree.to_string(), r#"{"C":56,"D":"/w=="}"#);
        assert_eq!(
            Value::decode(Format::Json(Json::Go), b"[1,2.5,null]", None).unwrap().to_string(),
            "[1,2.5,null]"
        );
        for (format, bytes) in [
            (Format::MessagePack, &b"\x82\xa1C"[..]),
            (Format::MessagePack, &[0x91; 200]),
            (Format::Json(Json::Go), b"{"),
            (Format::Protobuf, b"\x08\x01"),
            (Format::Raw, b"x"),
        ] {
            assert!(Value::decode(format, bytes, None).is_err(), "{format:?}");
        }
    }
}

//! Builds a request in ProtoJSON from a body, a query and a path.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use bytes::Bytes;
use polyrpc_core::Json;
use polyrpc_core::protocol::percent_decode;
use polyrpc_payload::schema::{EnumType, Field, Kind, Message, Spelling, WellKnown};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A message under construction: fields by their JSON names. Parts that need no changes are kept as received.
#[derive(Debug, Default)]
pub(super) struct Object(BTreeMap<String, Node>);

#[derive(Debug)]
enum Node {
    /// JSON text.
    Raw(String),
    Object(Object),
}

/// Why a body, a query and a path cannot be mapped to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestMappingError {
    reason: String,
}

impl Object {
    /// Parses a body that is the whole message; an empty body is an empty message.
    pub(super) fn read(message: &Message, body: &[u8]) -> Result<Self, RequestMappingError> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        let no_object = |error: serde_json::Error| {
            RequestMappingError::new(format!("the body is not a JSON object: {error}"))
        };
        let mut deserializer = serde_json::Deserializer::from_slice(body);
        let members = deserializer.deserialize_map(Members(message)).map_err(no_object)?;
        deserializer.end().map_err(no_object)?;
        Ok(Self(members.into_iter().map(|(name, raw)| (name, Node::Raw(raw.get().to_owned()))).collect()))
    }

    /// Creates a message with one field, whose value is the body.
    pub(super) fn new(message: &Message, name: &str, body: &[u8]) -> Result<Self, RequestMappingError> {
        let mut object = Self::default();
        if body.trim_ascii().is_empty() {
            return Ok(object);
        }
        let raw: &RawValue = serde_json::from_slice(body)
            .map_err(|error| RequestMappingError::new(format!("the body is not JSON: {error}")))?;
        let name = field(message, name).map_or(name, Field::json_name);
        object.0.insert(name.to_owned(), Node::Raw(raw.get().to_owned()));
        Ok(object)
    }

    /// Adds the fields of a query.
    pub(super) fn add_query(&mut self, message: &Message, query: &str) -> Result<(), RequestMappingError> {
        let pairs = pairs(query).ok_or_else(|| RequestMappingError::new("the query is malformed"))?;
        for (name, values) in pairs {
            let path: Vec<_> = name.split('.').map(str::to_owned).collect();
            if path.len() > DEPTH {
                return Err(RequestMappingError::new(format!("a name has more than {DEPTH} parts")));
            }
            if path.first().is_some_and(|name| field(message, name).is_some()) {
                let values: Vec<_> = values.iter().collect();
                self.set(message, &path, &values)?;
            }
        }
        Ok(())
    }

    /// Sets the field at the end of a path to these texts.
    pub(super) fn set(
        &mut self,
        message: &Message,
        path: &[String],
        values: &[&String],
    ) -> Result<(), RequestMappingError> {
        let (name, rest) = path.split_first().ok_or_else(|| RequestMappingError::new("a name is empty"))?;
        let field = field(message, name).ok_or_else(|| {
            RequestMappingError::new(format!(
                "{} has no field `{}`",
                message.full_name(),
                name.escape_debug()
            ))
        })?;
        if rest.is_empty() {
            self.0.insert(field.json_name().to_owned(), Node::Raw(json(message, field, values)?));
            return Ok(());
        }
        let inner = field.kind().message().filter(|_| !field.is_repeated());
        let inner = inner.map(|id| message.pool().message_at(id)).ok_or_else(|| {
            RequestMappingError::new(format!(
                "`{}` is not a message and has no field `{}`",
                field.name(),
                rest[0].escape_debug()
            ))
        })?;
        self.open(field, &inner)?.set(&inner, rest, values)
    }

    /// Returns the object in a field.
    fn open(&mut self, field: &Field, inner: &Message) -> Result<&mut Self, RequestMappingError> {
        let node =
            self.0.entry(field.json_name().to_owned()).or_insert_with(|| Node::Object(Self::default()));
        if let Node::Raw(raw) = node {
            // In JSON, null is a field that is not set.
            let object =
                if raw.trim() == "null" { Self::default() } else { Self::read(inner, raw.as_bytes())? };
            *node = Node::Object(object);
        }
        match node {
            Node::Object(object) => Ok(object),
            Node::Raw(_) => Err(RequestMappingError::new("a field is both a value and a message")),
        }
    }

    /// Serializes the message as JSON.
    pub(super) fn write(&self) -> String {
        let mut out = String::new();
        self.append_to(&mut out);
        out
    }

    fn append_to(&self, out: &mut String) {
        out.push('{');
        for (at, (name, node)) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(&quote(name));
            out.push(':');
            match node {
                Node::Raw(raw) => out.push_str(raw),
                Node::Object(object) => object.append_to(out),
            }
        }
        out.push('}');
    }
}

/// Reads the members of a JSON object: those that are fields of a message, by their JSON names, and a few others.
struct Members<'m>(&'m Message);

/// How many members without a field are kept, of which a decoder counts the unknown ones. All of them, in a long body of
/// short members, would take a multiple of its memory.
const MAX_UNKNOWN: usize = 1000;

impl<'de> Visitor<'de> for Members<'_> {
    type Value = BTreeMap<String, &'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut members, mut unknown) = (BTreeMap::new(), 0);
        while let Some(Name(name)) = map.next_key()? {
            let value: &'de RawValue = map.next_value()?;
            match field(self.0, &name) {
                Some(field) => {
                    members.insert(field.json_name().to_owned(), value);
                }
                None if unknown < MAX_UNKNOWN => {
                    unknown += 1;
                    members.insert(name.into_owned(), value);
                }
                None => {}
            }
        }
        Ok(members)
    }
}

/// Name of a member, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Name<'n>(#[serde(borrow)] Cow<'n, str>);

/// How many levels of nested messages a query may address.
const DEPTH: usize = 32;

/// Finds a field by its declared name or its JSON name.
pub(super) fn field<'m>(message: &'m Message, name: &str) -> Option<&'m Field> {
    message.fields().get(message.index_spelled(Spelling::Json, name, usize::MAX)? as usize)
}

/// Whether the field at the end of a path can be set from a text.
pub(super) fn takes_text(message: &Message, path: &[String]) -> bool {
    let Some((name, rest)) = path.split_first() else { return false };
    let Some(field) = field(message, name) else { return false };
    match (field.kind().message(), rest) {
        (None, []) => !field.is_repeated(),
        (Some(id), []) => !field.is_repeated() && is_text(&message.pool().message_at(id)),
        (Some(id), rest) => !field.is_repeated() && takes_text(&message.pool().message_at(id), rest),
        (None, _) => false,
    }
}

/// Returns the value of a message's field in its JSON of this dialect; `None` if that is not a JSON object.
pub(super) fn value_of(message: &Message, field: &Field, json: &[u8], dialect: Json) -> Option<Bytes> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(json).ok()?;
    // The dialect determines which of its names is used.
    let named = fields.get(field.json_name()).or_else(|| fields.get(field.brpc_name()));
    let value = named.map(|raw| Bytes::copy_from_slice(raw.get().as_bytes()));
    Some(value.unwrap_or_else(|| default_value(message, field, dialect)))
}

/// Returns the JSON of a field that is not set.
fn default_value(message: &Message, field: &Field, dialect: Json) -> Bytes {
    match field.kind() {
        // Go's dialect writes numbers.
        Kind::Enum(id) if !field.is_repeated() && dialect != Json::Go => {
            default_enum(message.pool().enum_type(id), dialect)
        }
        _ => Bytes::from_static(default_scalar(field, dialect)),
    }
}

fn default_enum(of: &EnumType, dialect: Json) -> Bytes {
    match of.name(of.first()) {
        _ if dialect == Json::Proto3 && of.full_name() == "google.protobuf.NullValue" => {
            Bytes::from_static(b"null")
        }
        Some(name) => quote(name).into(),
        None => Bytes::from_static(b"0"),
    }
}

fn default_scalar(field: &Field, dialect: Json) -> &'static [u8] {
    match field.kind() {
        _ if field.is_map() => b"{}",
        _ if field.is_repeated() => b"[]",
        Kind::Message(_) | Kind::Group(_) => b"null",
        Kind::Bool => b"false",
        Kind::String | Kind::Bytes => b"\"\"",
        // ProtoJSON writes them as strings, since JavaScript's numbers have 53 bits.
        Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64
            if dialect == Json::Proto3 =>
        {
            b"\"0\""
        }
        _ => b"0",
    }
}

/// Converts texts to the JSON of a field.
fn json(message: &Message, field: &Field, values: &[&String]) -> Result<String, RequestMappingError> {
    if field.is_map() {
        return Err(RequestMappingError::new(format!(
            "`{}` is a map, which a string cannot express",
            field.name()
        )));
    }
    let each: Result<Vec<_>, _> = values.iter().map(|value| scalar(message, field, value)).collect();
    let mut each = each?;
    match (field.is_repeated(), each.len()) {
        (true, _) => Ok(format!("[{}]", each.join(","))),
        (false, 1) => Ok(each.remove(0)),
        (false, _) => Err(RequestMappingError::new(format!("`{}` occurs more than once", field.name()))),
    }
}

/// Converts a text to JSON. ProtoJSON accepts numbers, bytes and times as strings, but not booleans or the numbers
/// of enums.
fn scalar(message: &Message, field: &Field, text: &str) -> Result<String, RequestMappingError> {
    let wrapped = |id| message.pool().message_at(id);
    match field.kind() {
        Kind::Bool => parse_bool(field, text),
        Kind::Enum(_) if text.parse::<i32>().is_ok() => Ok(text.to_owned()),
        Kind::Message(id) | Kind::Group(id) if is_text(&wrapped(id)) => {
            match wrapped(id).field(1).map(Field::kind) {
                Some(Kind::Bool) => parse_bool(field, text),
                _ => Ok(quote(text)),
            }
        }
        Kind::Message(_) | Kind::Group(_) => Err(RequestMappingError::new(format!(
            "`{}` is a message, which a string cannot express",
            field.name()
        ))),
        _ => Ok(quote(text)),
    }
}

fn parse_bool(field: &Field, text: &str) -> Result<String, RequestMappingError> {
    match text {
        "true" | "false" => Ok(text.to_owned()),
        _ => Err(RequestMappingError::new(format!(
            "`{}` is true or false, not `{}`",
            field.name(),
            text.escape_debug()
        ))),
    }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether the JSON form of a message is a string, or may be one.
fn is_text(message: &Message) -> bool {
    use WellKnown::{Duration, FieldMask, Timestamp, Wrapper};
    matches!(message.well_known(), Some(Timestamp | Duration | FieldMask | Wrapper))
}

impl RequestMappingError {
    #[cold]
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for RequestMappingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for RequestMappingError {}

/// Parses a percent-encoded query into names and values, grouped by name.
fn pairs(query: &str) -> Option<Vec<(String, Vec<String>)>> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    let mut indices = HashMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = |text: &str| percent_decode(&text.replace('+', " "));
        let (name, value) = (plain(name)?, plain(value)?);
        let index = *indices.entry(name.clone()).or_insert_with(|| {
            all.push((name, Vec::new()));
            all.len() - 1
        });
        all[index].1.push(value);
    }
    Some(all)
}

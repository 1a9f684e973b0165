//! JSON Schema of messages.

mod message;
mod plain;
mod struct_pack;
#[cfg(feature = "fbs")]
mod table;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polyrpc::Json;
use polyrpc::payload::schema::{EnumId, Message, Pool};
use serde_json::{Map, Value, json};

pub(crate) use self::message::name;
use crate::{Comments, Content};

/// JSON Schemas (2020-12) of messages, each under the full name of its declaration.
///
/// A schema describes the JSON that a PolyRPC server writes. The server also accepts numbers as strings, `null` for
/// unset fields, and fields by either of their names.
///
/// ```
/// use polyrpc::Json;
/// use polyrpc::payload::TypeSchema;
/// use polyrpc_describe::{Content, Definitions};
///
/// let mut definitions = Definitions::new(Json::Proto3, "#/$defs/");
/// let schema = definitions.schema(&Content::Type(TypeSchema::List(Box::new(TypeSchema::Uint(8)))));
/// assert_eq!(schema["items"]["maximum"], 255);
/// ```
#[derive(Debug)]
pub struct Definitions {
    dialect: Json,
    prefix: &'static str,
    suffix: &'static str,
    exclusive_oneofs: bool,
    finished: BTreeMap<String, Value>,
    /// Names that have a reference, with the identity of the declaration.
    named: BTreeMap<String, Identity>,
    waiting: VecDeque<(String, Declaration)>,
    conflicts: Vec<String>,
}

/// A declaration that gets its own definition.
#[derive(Debug, Clone)]
enum Declaration {
    Message(Message, Arc<Comments>),
    Enum(Pool, EnumId, Arc<Comments>),
    #[cfg(feature = "fbs")]
    Table(Arc<polyrpc_build::fbs::Schema>, usize),
    #[cfg(feature = "fbs")]
    Struct(Arc<polyrpc_build::fbs::Schema>, usize),
}

/// The set of files that declares something: their descriptors are at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(usize);

impl Definitions {
    /// Creates an empty collection for messages in a dialect of JSON. References begin with `prefix`, where the
    /// document has the definitions: `#/$defs/`.
    pub fn new(dialect: Json, prefix: &'static str) -> Self {
        Self {
            dialect,
            prefix,
            suffix: "",
            exclusive_oneofs: false,
            finished: BTreeMap::new(),
            named: BTreeMap::new(),
            waiting: VecDeque::new(),
            conflicts: Vec::new(),
        }
    }

    /// Adds a suffix to all names, so that a document may have the same messages in several dialects.
    #[must_use]
    pub fn suffix(mut self, suffix: &'static str) -> Self {
        self.suffix = suffix;
        self
    }

    /// Makes the schema require that only one member of a `oneof` is set. By default only descriptions say so, since
    /// many programs that generate code or call tools do not accept the keywords for it.
    #[must_use]
    pub fn exclusive_oneofs(mut self) -> Self {
        self.exclusive_oneofs = true;
        self
    }

    /// Returns the schema of a method's messages, which refers to definitions.
    pub fn schema(&mut self, content: &Content) -> Value {
        match content {
            Content::Message(message, comments) => self.message(message, comments),
            Content::Type(schema) => plain::type_schema(schema),
            Content::Arguments(types) => struct_pack::arguments(types),
            Content::Result(ty) => struct_pack::value(ty),
            #[cfg(feature = "fbs")]
            Content::Table(schema, table) => self.table(schema, *table),
        }
    }

    /// Returns the schema of a method's messages in full instead of as a reference. The definition remains, since
    /// others may refer to it.
    pub fn inline_schema(&mut self, content: &Content) -> Value {
        let schema = self.schema(content);
        self.finish();
        let reference = schema.get("$ref").and_then(Value::as_str);
        let name = reference.and_then(|reference| reference.strip_prefix(self.prefix));
        match name.and_then(|name| self.finished.get(name)) {
            Some(definition) => definition.clone(),
            None => schema,
        }
    }

    /// Returns the definitions by name, and the names that were declared in several different ways: of these the first
    /// declaration counts.
    pub fn into_parts(mut self) -> (Map<String, Value>, Vec<String>) {
        self.finish();
        (self.finished.into_iter().collect(), self.conflicts)
    }

    /// Defines everything that has a reference. A definition may add more: declarations refer to themselves.
    fn finish(&mut self) {
        while let Some((name, declaration)) = self.waiting.pop_front() {
            let definition = match declaration {
                Declaration::Message(message, comments) => self.message_definition(&message, &comments),
                Declaration::Enum(pool, id, comments) => {
                    message::enum_definition(self.dialect, pool.enum_type(id), &comments)
                }
                #[cfg(feature = "fbs")]
                Declaration::Table(schema, table) => self.table_definition(&schema, table),
                #[cfg(feature = "fbs")]
                Declaration::Struct(schema, index) => self.struct_definition(&schema, index),
            };
            match self.finished.get(&name) {
                None => {
                    self.finished.insert(name, definition);
                }
                Some(known) if *known == definition => {}
                Some(_) if self.conflicts.contains(&name) => {}
                Some(_) => self.conflicts.push(name),
            }
        }
    }

    /// Returns a reference to a declaration, and schedules its definition.
    fn reference(&mut self, full_name: &str, identity: Identity, declaration: Declaration) -> Value {
        let name = format!("{full_name}{}", self.suffix);
        let reference = json!({ "$ref": format!("{}{name}", self.prefix) });
        match self.named.get(&name) {
            Some(known) if *known == identity => {}
            // The same file may be part of several sets.
            _ => {
                self.named.insert(name.clone(), identity);
                self.waiting.push_back((name, declaration));
            }
        }
        reference
    }
}

/// A schema of an object with these members and no others.
fn object(properties: Map<String, Value>, required: Vec<String>) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    if !properties.is_empty() {
        schema.insert("properties".into(), properties.into());
    }
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    schema.insert("additionalProperties".into(), false.into());
    schema
}

/// Adds a description to a schema.
fn describe(schema: &mut Value, text: Option<&str>) {
    if let (Value::Object(schema), Some(text)) = (schema, text) {
        schema.insert("description".into(), text.into());
    }
}

/// An integer of this many bits.
fn integer(signed: bool, bits: u8) -> Value {
    let (least, most) = match (signed, bits) {
        (true, 64..) => (json!(i64::MIN), json!(i64::MAX)),
        (false, 64..) => (json!(0), json!(u64::MAX)),
        (true, bits) => (json!(-(1_i64 << (bits - 1))), json!((1_i64 << (bits - 1)) - 1)),
        (false, bits) => (json!(0), json!((1_u64 << bits) - 1)),
    };
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

/// A number, or one of the words for numbers that JSON cannot represent.
fn float(words: &[&str]) -> Value {
    json!({ "anyOf": [{ "type": "number" }, { "type": "string", "enum": words }] })
}

#[cfg(test)]
pub(crate) mod tests;

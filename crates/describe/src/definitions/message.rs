//! Messages of a `.proto`, as the transcoder writes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyrpc::Json;
use polyrpc::payload::schema::{Cardinality, EnumType, Field, Kind, Message, WellKnown};
use serde_json::{Map, Value, json};

use super::{Declaration, Definitions, Identity, describe, float, integer, object};
use crate::Comments;

impl Definitions {
    pub(super) fn message(&mut self, message: &Message, comments: &Arc<Comments>) -> Value {
        if let Some(schema) = self.well_known(message, comments) {
            return schema;
        }
        let identity = identity(message);
        self.reference(message.full_name(), identity, Declaration::Message(message.clone(), comments.clone()))
    }

    pub(super) fn message_definition(&mut self, message: &Message, comments: &Arc<Comments>) -> Value {
        let dialect = self.dialect;
        let (mut properties, mut required) = (Map::new(), Vec::new());
        let mut oneofs: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for field in message.fields().iter().filter(|field| has_field(dialect, field)) {
            let name = name(self.dialect, field).to_owned();
            if field.is_required() {
                required.push(name.clone());
            }
            if let Some(oneof) = field.oneof() {
                oneofs.entry(oneof).or_default().push(name.clone());
            }
            let schema = self.field(message, field, comments);
            properties.insert(name, schema);
        }
        let mut schema = object(properties, required);
        let mut notes: Vec<_> =
            comments.comment(message.full_name()).map(str::to_owned).into_iter().collect();
        let several = oneofs.into_values().filter(|names| names.len() > 1);
        let mut exclusive = Vec::new();
        for names in several {
            notes.push(format!("At most one of these is set: {}.", names.join(", ")));
            exclusive.push(at_most_one(&names));
        }
        if self.exclusive_oneofs && !exclusive.is_empty() {
            schema.insert("allOf".into(), exclusive.into());
        }
        if !notes.is_empty() {
            schema.insert("description".into(), notes.join("\n\n").into());
        }
        schema.into()
    }

    /// Returns the schema of a field's value, with its description.
    pub(crate) fn field(&mut self, message: &Message, field: &Field, comments: &Arc<Comments>) -> Value {
        let mut schema = match (self.entry(message, field), field.cardinality()) {
            (Some(entry), _) => self.map(&entry, comments),
            (None, Cardinality::Repeated) => {
                json!({ "type": "array", "items": self.kind(message, field.kind(), comments) })
            }
            (None, _) => self.kind(message, field.kind(), comments),
        };
        describe(&mut schema, comments.comment(field.full_name()));
        schema
    }

    /// The message of the entries, if the field is written as an object.
    fn entry(&self, message: &Message, field: &Field) -> Option<Message> {
        let is_map = match self.dialect {
            Json::Brpc | Json::BrpcLenient => field.is_map_like(),
            _ => field.is_map(),
        };
        field.kind().message().filter(|_| is_map).map(|id| message.pool().message_at(id))
    }

    fn map(&mut self, entry: &Message, comments: &Arc<Comments>) -> Value {
        // The second field of an entry is its value, whatever its number.
        let value = entry.fields().iter().find(|field| field.name() == "value");
        let values = value.map_or(Value::Bool(true), |field| self.field(entry, field, comments));
        let mut schema = json!({ "type": "object", "additionalProperties": values });
        let key = entry.fields().iter().find(|field| field.name() == "key").map(Field::kind);
        let names = match key {
            Some(Kind::Bool) => json!({ "enum": ["true", "false"] }),
            None | Some(Kind::String) => return schema,
            Some(kind) => json!({ "pattern": digits(kind) }),
        };
        schema["propertyNames"] = names;
        schema
    }

    fn kind(&mut self, message: &Message, kind: Kind, comments: &Arc<Comments>) -> Value {
        let in_text = self.dialect == Json::Proto3;
        match kind {
            Kind::Bool => json!({ "type": "boolean" }),
            Kind::String => json!({ "type": "string" }),
            Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            Kind::Float | Kind::Double => float(&["NaN", "Infinity", "-Infinity"]),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => integer(true, 32),
            Kind::Uint32 | Kind::Fixed32 => integer(false, 32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 if !in_text => integer(true, 64),
            Kind::Uint64 | Kind::Fixed64 if !in_text => integer(false, 64),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                json!({ "type": "string", "format": "int64", "pattern": digits(kind) })
            }
            Kind::Uint64 | Kind::Fixed64 => {
                json!({ "type": "string", "format": "uint64", "pattern": digits(kind) })
            }
            Kind::Enum(id) => {
                let declared = message.pool().enum_type(id);
                if is_null(self.dialect, declared) {
                    return json!({ "type": "null" });
                }
                let (name, identity) = (declared.full_name().to_owned(), identity(message));
                self.reference(
                    &name,
                    identity,
                    Declaration::Enum(message.pool().clone(), id, comments.clone()),
                )
            }
            Kind::Message(id) | Kind::Group(id) => self.message(&message.pool().message_at(id), comments),
        }
    }

    /// The form of a message with a special representation in ProtoJSON.
    fn well_known(&mut self, message: &Message, comments: &Arc<Comments>) -> Option<Value> {
        let known = message.well_known().filter(|_| self.dialect == Json::Proto3)?;
        Some(match known {
            WellKnown::Any => json!({
                "type": "object",
                "description": "A message of any type: its members, or `value` if it is not written as an object.",
                "properties": { "@type": { "type": "string", "description": "Where its type is described." } },
            }),
            WellKnown::Timestamp => json!({ "type": "string", "format": "date-time" }),
            WellKnown::Duration => json!({
                "type": "string",
                "description": "Seconds, with up to nine digits behind the point: `1.5s`.",
                "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$",
            }),
            WellKnown::FieldMask => json!({
                "type": "string",
                "description": "Paths of fields, separated by commas: `user.displayName,photo`.",
            }),
            WellKnown::Struct => json!({ "type": "object" }),
            WellKnown::Value => json!({ "description": "Any JSON." }),
            WellKnown::ListValue => json!({ "type": "array", "items": {} }),
            WellKnown::Wrapper => {
                let value = message.fields().first()?;
                self.kind(message, value.kind(), comments)
            }
            WellKnown::Empty => object(Map::new(), Vec::new()).into(),
        })
    }
}

/// Whether a dialect writes the field.
fn has_field(dialect: Json, field: &Field) -> bool {
    !(dialect == Json::Go && field.is_extension())
}

/// An enum by its names. A number without a name is written as a number, unless the enum is closed.
pub(super) fn enum_definition(dialect: Json, declared: &EnumType, comments: &Comments) -> Value {
    let names: Vec<_> = declared.values().iter().map(|value| value.name()).collect();
    let by_name = json!({ "type": "string", "enum": names });
    let mut schema = match (dialect, declared.is_closed()) {
        (Json::Go, _) => integer(true, 32),
        (_, true) => by_name,
        (_, false) => json!({ "anyOf": [by_name, integer(true, 32)] }),
    };
    describe(&mut schema, comments.comment(declared.full_name()));
    schema
}

fn is_null(dialect: Json, declared: &EnumType) -> bool {
    dialect == Json::Proto3 && declared.full_name() == "google.protobuf.NullValue"
}

/// The name of a field in a dialect.
pub(crate) fn name(dialect: Json, field: &Field) -> &str {
    match dialect {
        Json::Proto3 => field.json_name(),
        Json::Brpc | Json::BrpcLenient => field.brpc_name(),
        Json::Go => field.name(),
    }
}

/// At most one of these members is set. The schema grows with the number of members, not of their pairs.
fn at_most_one(names: &[String]) -> Value {
    let set: Vec<_> = names.iter().map(|name| json!({ "required": [name] })).collect();
    let mut cases = set.clone();
    cases.push(json!({ "not": { "anyOf": set } }));
    json!({ "oneOf": cases })
}

fn digits(kind: Kind) -> &'static str {
    match kind {
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 | Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            "^-?[0-9]{1,19}$"
        }
        _ => "^[0-9]{1,20}$",
    }
}

/// Pools that share their descriptors are the same.
fn identity(message: &Message) -> Identity {
    Identity(message.pool().encoded().as_ptr().addr())
}

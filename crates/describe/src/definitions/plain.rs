//! Values of serde types, as serde writes them in JSON.

use polyrpc::payload::TypeSchema;
use serde_json::{Map, Value, json};

use super::{integer, object};

/// The depth and the size of a type's schema are limited where it is created.
pub(super) fn type_schema(schema: &TypeSchema) -> Value {
    match schema {
        TypeSchema::Bool => json!({ "type": "boolean" }),
        TypeSchema::Int(bits) => integer(true, *bits),
        TypeSchema::Uint(bits) => integer(false, *bits),
        TypeSchema::Float(_) => json!({ "type": "number" }),
        TypeSchema::String => json!({ "type": "string" }),
        TypeSchema::Bytes => json!({ "type": "array", "items": integer(false, 8) }),
        TypeSchema::Optional(inner) => json!({ "anyOf": [type_schema(inner), { "type": "null" }] }),
        TypeSchema::List(item) => json!({ "type": "array", "items": type_schema(item) }),
        TypeSchema::Tuple(items) => {
            let items: Vec<_> = items.iter().map(type_schema).collect();
            tuple(items)
        }
        TypeSchema::Map(_, value) => json!({ "type": "object", "additionalProperties": type_schema(value) }),
        TypeSchema::Struct { name, fields } => {
            let properties: Map<_, _> =
                fields.iter().map(|(name, field)| (name.clone(), type_schema(field))).collect();
            let is_optional = |field: &TypeSchema| matches!(field, TypeSchema::Optional(_) | TypeSchema::Any);
            let required =
                fields.iter().filter(|(_, field)| !is_optional(field)).map(|(name, _)| name.clone());
            let mut schema = object(properties, required.collect());
            // Fields may be flattened, which is only visible in values.
            schema.remove("additionalProperties");
            schema.insert("title".into(), name.as_str().into());
            schema.into()
        }
        _ => Value::Object(Map::new()),
    }
}

/// A list with exactly these items.
pub(super) fn tuple(items: Vec<Value>) -> Value {
    let count = items.len();
    match count {
        0 => json!({ "type": "array", "maxItems": 0 }),
        _ => json!({ "type": "array", "prefixItems": items, "minItems": count, "maxItems": count }),
    }
}

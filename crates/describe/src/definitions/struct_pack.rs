//! Values of C++ types, as struct_pack's plans write them in JSON.

use polyrpc::payload::struct_pack::{Character, Scalar, Type};
use serde_json::{Map, Value, json};

use super::plain::tuple;
use super::{float, integer};

/// A list of arguments.
pub(super) fn arguments(types: &[Type]) -> Value {
    tuple(types.iter().map(value).collect())
}

/// One value. Types that contain themselves are truncated there.
pub(super) fn value(ty: &Type) -> Value {
    match ty {
        Type::Unit => json!({ "type": "null" }),
        Type::Scalar(scalar) => scalar_schema(*scalar),
        Type::String(Character::Char) => json!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": integer(false, 8) }],
            "description": "A text; a list of its bytes if it is not UTF-8.",
        }),
        Type::String(_) => json!({ "type": "string" }),
        Type::Array(item, count) => {
            json!({ "type": "array", "items": value(item), "minItems": count, "maxItems": count })
        }
        Type::List(item) | Type::Set(item) => json!({ "type": "array", "items": value(item) }),
        Type::Map(key, inner) => {
            let pairs = json!({ "type": "array", "items": tuple(vec![value(key), value(inner)]) });
            match **key {
                Type::String(_) => json!({ "type": "object", "additionalProperties": value(inner) }),
                _ => pairs,
            }
        }
        Type::Optional(inner) => json!({ "anyOf": [value(inner), { "type": "null" }] }),
        Type::Variant(alternatives) => variant(alternatives.iter()),
        Type::Expected(inner, error) => variant([&**inner, &**error].into_iter()),
        Type::Struct(declared) => tuple(declared.members.iter().map(value).collect()),
        Type::Recursive(_) => Value::Object(Map::new()),
    }
}

/// One of several types, by its index.
fn variant<'t>(alternatives: impl Iterator<Item = &'t Type>) -> Value {
    let case = |(index, ty): (usize, &Type)| {
        json!({
            "type": "object",
            "properties": { "index": { "const": index }, "value": value(ty) },
            "required": ["index", "value"],
        })
    };
    json!({ "oneOf": alternatives.enumerate().map(case).collect::<Vec<_>>() })
}

fn scalar_schema(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Bool => json!({ "type": "boolean" }),
        Scalar::I8 => integer(true, 8),
        Scalar::U8 => integer(false, 8),
        Scalar::I16 => integer(true, 16),
        Scalar::U16 => integer(false, 16),
        Scalar::F32 | Scalar::F64 => float(&["NaN", "inf", "-inf"]),
        Scalar::Char | Scalar::Char16 | Scalar::Char32 => {
            json!({ "anyOf": [{ "type": "string", "minLength": 1, "maxLength": 1 }, { "type": "integer" }] })
        }
        // Numbers of more than 64 bits are in quotes.
        Scalar::I128 | Scalar::U128 => {
            json!({ "anyOf": [{ "type": "integer" }, { "type": "string", "pattern": "^-?[0-9]+$" }] })
        }
        Scalar::I32 | Scalar::VarI32 | Scalar::FastI32 => integer(true, 32),
        Scalar::U32 | Scalar::VarU32 | Scalar::FastU32 => integer(false, 32),
        Scalar::I64 | Scalar::VarI64 | Scalar::FastI64 => integer(true, 64),
        Scalar::U64 | Scalar::VarU64 | Scalar::FastU64 => integer(false, 64),
    }
}

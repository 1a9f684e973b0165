//! JSON form of values, for users who know a type only by its name: the command line. An optional value without content
//! is not distinguished from an absent one.

use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_core::ser::{Error as _, Serialize, SerializeMap, SerializeTuple, Serializer};
use serde_json::{Map, Number, Value, json};

use super::encode_plan::{Id, Node, Plan};
use super::input::Input;
use super::output::{self, Form};
use super::types::Scalar;
use super::{Error, de::Decoder, ser::Encoder};

impl Plan {
    /// Encodes a value given as JSON: structs and tuples are arrays, variants `{"index": 1, "value": ...}`.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if the value does not have this type.
    pub fn encode_json(&self, value: &Value, form: Form) -> Result<Vec<u8>, Error> {
        output::write(self.code(), self.literal(), form, |out| {
            JsonValue { plan: self, id: Id::ROOT, value }.serialize(Encoder::new(self, out))
        })
    }

    /// Decodes a value to JSON, in the form that [`encode_json`](Self::encode_json) accepts.
    ///
    /// # Errors
    ///
    /// See [`decode`](Self::decode).
    pub fn decode_json(&self, bytes: &[u8]) -> Result<Value, Error> {
        let mut input = Input::open(self.code(), self.literal(), bytes)?;
        JsonBuilder.deserialize(Decoder::new(self, &mut input))
    }
}

/// Builds JSON from any value.
struct JsonBuilder;

impl<'de> DeserializeSeed<'de> for JsonBuilder {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonBuilder {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    /// JSON parsers accept at most 64 bits for a number.
    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(|_| value.to_string().into(), Value::from))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or_else(|_| value.to_string().into(), Value::from))
    }

    /// The shortest text that identifies the value among single-precision numbers.
    fn visit_f32<E: de::Error>(self, value: f32) -> Result<Value, E> {
        self.visit_f64(value.to_string().parse().unwrap_or_else(|_| value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number))
    }

    fn visit_char<E: de::Error>(self, value: char) -> Result<Value, E> {
        Ok(value.to_string().into())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    /// A C++ string that is not UTF-8.
    fn visit_bytes<E: de::Error>(self, value: &[u8]) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(Self)? {
            values.push(value);
        }
        Ok(values.into())
    }

    /// An object if the keys allow it, otherwise a list of pairs.
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = entries.next_key_seed(Self)? {
            pairs.push((key, entries.next_value_seed(Self)?));
        }
        let object: Option<Map<_, _>> =
            pairs.iter().map(|(key, value)| Some((key.as_str()?.to_owned(), value.clone()))).collect();
        Ok(match object {
            Some(object) if object.len() == pairs.len() => object.into(),
            _ => pairs.into_iter().map(|(key, value)| json!([key, value])).collect(),
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, chosen: A) -> Result<Value, A::Error> {
        let (index, inner) = chosen.variant_seed(PhantomData::<u32>)?;
        Ok(json!({ INDEX: index, VALUE: inner.newtype_variant_seed(self)? }))
    }
}

const INDEX: &str = "index";
const VALUE: &str = "value";

/// JSON as a serde value, driven by the plan.
#[derive(Clone, Copy)]
struct JsonValue<'a> {
    plan: &'a Plan,
    id: Id,
    value: &'a Value,
}

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.plan.node(self.id), self.value) {
            (Node::Unit { .. }, Value::Null) => serializer.serialize_unit(),
            (Node::Scalar(scalar), value) => scalar.serialize(value, serializer),
            (Node::String(_), Value::String(text)) => serializer.serialize_str(text),
            (Node::String(_), Value::Array(bytes)) => {
                let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
                let bytes: Option<Vec<_>> = bytes.iter().map(byte).collect();
                serializer.serialize_bytes(&bytes.ok_or_else(|| self.refuse::<S>())?)
            }
            (Node::Array { item, .. } | Node::List { item, .. }, Value::Array(values)) => {
                serializer.collect_seq(values.iter().map(|value| self.part(*item, value)))
            }
            (Node::Map { entry: [key, value], .. }, Value::Object(object)) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                for (name, inner) in object {
                    map.serialize_key(&self.part(key.id, &Value::from(name.as_str())))?;
                    map.serialize_value(&self.part(value.id, inner))?;
                }
                map.end()
            }
            (Node::Map { entry: [key, value], .. }, Value::Array(pairs)) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                for pair in pairs {
                    let Some([name, inner]) = pair.as_array().map(Vec::as_slice) else {
                        return Err(self.refuse::<S>());
                    };
                    map.serialize_entry(&self.part(key.id, name), &self.part(value.id, inner))?;
                }
                map.end()
            }
            (Node::Optional(_), Value::Null) => serializer.serialize_none(),
            (Node::Optional(id), value) => serializer.serialize_some(&self.part(*id, value)),
            (Node::Variant(_) | Node::Expected { .. }, Value::Object(object)) => {
                let index = object.get(INDEX).and_then(Value::as_u64);
                let index = index.and_then(|index| u32::try_from(index).ok());
                let chosen = index.and_then(|index| Some((index, self.alternative(index)?)));
                let (index, id) = chosen.ok_or_else(|| self.refuse::<S>())?;
                let value = object.get(VALUE).unwrap_or(&Value::Null);
                serializer.serialize_newtype_variant("", index, "", &self.part(id, value))
            }
            (Node::Struct { members, .. }, Value::Array(values)) if values.len() == members.len() => {
                let mut tuple = serializer.serialize_tuple(values.len())?;
                for (member, value) in members.iter().zip(values) {
                    tuple.serialize_element(&self.part(member.id, value))?;
                }
                tuple.end()
            }
            _ => Err(self.refuse::<S>()),
        }
    }
}

impl<'a> JsonValue<'a> {
    fn part<'v>(&self, id: Id, value: &'v Value) -> JsonValue<'v>
    where
        'a: 'v,
    {
        JsonValue { plan: self.plan, id, value }
    }

    fn alternative(&self, index: u32) -> Option<Id> {
        match (self.plan.node(self.id), index) {
            (Node::Variant(alternatives), _) => alternatives.get(index as usize).copied(),
            (Node::Expected { value, .. }, 0) => Some(*value),
            (Node::Expected { error, .. }, 1) => Some(*error),
            _ => None,
        }
    }

    #[cold]
    fn refuse<S: Serializer>(&self) -> S::Error {
        refuse::<S>(self.value, self.plan.node(self.id).describe())
    }
}

impl Scalar {
    fn serialize<S: Serializer>(self, value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
        let wrong = || refuse::<S>(value, self.as_str());
        match self {
            Self::Bool => serializer.serialize_bool(value.as_bool().ok_or_else(wrong)?),
            Self::F32 => serializer.serialize_f32(float(value).ok_or_else(wrong)? as f32),
            Self::F64 => serializer.serialize_f64(float(value).ok_or_else(wrong)?),
            Self::U128 => serializer.serialize_u128(integer(value).ok_or_else(wrong)?),
            Self::Char | Self::Char16 | Self::Char32 => match character(value) {
                Some(character) => serializer.serialize_char(character),
                None => serializer.serialize_i128(integer(value).ok_or_else(wrong)?),
            },
            _ => serializer.serialize_i128(integer(value).ok_or_else(wrong)?),
        }
    }
}

#[cold]
fn refuse<S: Serializer>(value: &Value, wanted: &str) -> S::Error {
    S::Error::custom(format_args!("{value} is not what is written as {wanted}"))
}

/// Parses a number, or one that JSON can express only as a text: `"NaN"`, `"inf"`.
fn float(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// Parses a number, or a text of one, such as keys of objects and numbers of more than 64 bits.
fn integer<N: std::str::FromStr + TryFrom<i64> + From<u64>>(value: &Value) -> Option<N> {
    match value {
        Value::Number(number) => match number.as_u64() {
            Some(number) => Some(number.into()),
            None => number.as_i64()?.try_into().ok(),
        },
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn character(value: &Value) -> Option<char> {
    let mut characters = value.as_str()?.chars();
    characters.next().filter(|_| characters.next().is_none())
}

//! Derives the structure of values, for descriptions of a server's methods.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use polyrpc_payload::TypeSchema;
use polyrpc_payload::schema::{Cardinality, Kind, Message};
use serde::de::value::Error;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// Limits of a schema's depth and number of parts: types may contain themselves.
const DEPTH: u8 = 6;
const PARTS: u32 = 2_000;

/// Length of a tuple up to which each element has a schema: longer ones are arrays.
const MAX_TUPLE: usize = 16;

/// Returns the schema of a message from a `.proto`; its fields have the names that Go gives them.
pub(super) fn from_message(message: &Message) -> TypeSchema {
    message_part(message, 0, &Cell::new(PARTS))
}

fn message_part(message: &Message, depth: u8, left: &Cell<u32>) -> TypeSchema {
    if depth > DEPTH || left.get() == 0 {
        return TypeSchema::Any;
    }
    left.set(left.get() - 1);
    let pool = message.pool();
    let fields = message.fields().iter().filter(|field| !field.is_extension());
    let fields = fields.map(|field| {
        let one = |kind: Kind| match kind.message() {
            Some(id) => message_part(&pool.message_at(id), depth + 1, left),
            None => scalar(kind),
        };
        let entry = field.kind().message().filter(|_| field.is_map()).map(|id| pool.message_at(id));
        let type_schema = match (&entry, field.cardinality()) {
            (Some(entry), _) => {
                let part = |number| entry.field(number).map_or(TypeSchema::Any, |part| one(part.kind()));
                TypeSchema::Map(Box::new(part(1)), Box::new(part(2)))
            }
            (None, Cardinality::Repeated) => TypeSchema::List(Box::new(one(field.kind()))),
            (None, _) => one(field.kind()),
        };
        (go_name(field.name()), type_schema)
    });
    TypeSchema::Struct { name: message.name().to_owned(), fields: fields.collect() }
}

fn scalar(kind: Kind) -> TypeSchema {
    match kind {
        Kind::Double => TypeSchema::Float(64),
        Kind::Float => TypeSchema::Float(32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => TypeSchema::Int(64),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Enum(_) => TypeSchema::Int(32),
        Kind::Uint64 | Kind::Fixed64 => TypeSchema::Uint(64),
        Kind::Uint32 | Kind::Fixed32 => TypeSchema::Uint(32),
        Kind::Bool => TypeSchema::Bool,
        Kind::String => TypeSchema::String,
        Kind::Bytes => TypeSchema::Bytes,
        Kind::Message(_) | Kind::Group(_) => TypeSchema::Any,
    }
}

/// Returns a field's name as in protoc-gen-go: every part starts with a capital letter.
fn go_name(name: &str) -> String {
    let mut begins = true;
    let mut go = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '_' => begins = true,
            _ if begins => {
                go.push(letter.to_ascii_uppercase());
                begins = false;
            }
            _ => go.push(letter),
        }
    }
    go
}

/// Returns the schema of a plain type: the values that it requests from a probing deserializer.
pub(crate) fn from_type<T: DeserializeOwned>() -> TypeSchema {
    let mut found = TypeSchema::Any;
    let left = Cell::new(PARTS);
    // A type may reject default values, or panic on them: the requests made before are recorded all the same.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let probe = Probe { found: &mut found, depth: 0, left: &left };
        T::deserialize(probe).map(drop)
    }));
    found
}

/// Deserializer that provides the requested values, and records the requests.
struct Probe<'p> {
    found: &'p mut TypeSchema,
    depth: u8,
    left: &'p Cell<u32>,
}

impl<'p> Probe<'p> {
    /// Creates the probe of a part of the value; fails once there are too many.
    fn part<'q>(&self, found: &'q mut TypeSchema) -> Probe<'q>
    where
        'p: 'q,
    {
        self.left.set(self.left.get().saturating_sub(1));
        Probe { found, depth: self.depth + 1, left: self.left }
    }

    fn goes_deeper(&self) -> bool {
        self.depth < DEPTH && self.left.get() > 0
    }
}

macro_rules! scalars {
    ($($method:ident $visit:ident $value:expr => $type_schema:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            *self.found = $type_schema;
            visitor.$visit($value)
        })*
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    scalars! {
        deserialize_bool visit_bool false => TypeSchema::Bool;
        deserialize_i8 visit_i8 0 => TypeSchema::Int(8);
        deserialize_i16 visit_i16 0 => TypeSchema::Int(16);
        deserialize_i32 visit_i32 0 => TypeSchema::Int(32);
        deserialize_i64 visit_i64 0 => TypeSchema::Int(64);
        deserialize_u8 visit_u8 0 => TypeSchema::Uint(8);
        deserialize_u16 visit_u16 0 => TypeSchema::Uint(16);
        deserialize_u32 visit_u32 0 => TypeSchema::Uint(32);
        deserialize_u64 visit_u64 0 => TypeSchema::Uint(64);
        deserialize_f32 visit_f32 0.0 => TypeSchema::Float(32);
        deserialize_f64 visit_f64 0.0 => TypeSchema::Float(64);
        deserialize_char visit_char 'a' => TypeSchema::String;
        deserialize_str visit_str "" => TypeSchema::String;
        deserialize_string visit_str "" => TypeSchema::String;
        deserialize_bytes visit_bytes b"" => TypeSchema::Bytes;
        deserialize_byte_buf visit_bytes b"" => TypeSchema::Bytes;
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.goes_deeper() {
            return visitor.visit_none();
        }
        let mut inner = TypeSchema::Any;
        let result = visitor.visit_some(self.part(&mut inner));
        *self.found = TypeSchema::Optional(Box::new(inner));
        result
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut item = TypeSchema::Any;
        let left = usize::from(self.goes_deeper());
        let result = visitor.visit_seq(Items { probe: &self, item: &mut item, left });
        *self.found = TypeSchema::List(Box::new(item));
        result
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        // A type may name any length; what it then asks for is bounded.
        let mut elements = vec![TypeSchema::Any; length.min(MAX_TUPLE)];
        let result = visitor.visit_seq(Elements { probe: &self, elements: &mut elements, next: 0, length });
        *self.found = match length {
            0..=MAX_TUPLE => TypeSchema::Tuple(elements),
            _ => TypeSchema::List(Box::new(TypeSchema::Any)),
        };
        result
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let (mut key, mut value) = (TypeSchema::Any, TypeSchema::Any);
        let done = !self.goes_deeper();
        let result = visitor.visit_map(Entries { probe: &self, key: &mut key, value: &mut value, done });
        *self.found = TypeSchema::Map(Box::new(key), Box::new(value));
        result
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut fields: Vec<_> = names.iter().map(|name| ((*name).to_owned(), TypeSchema::Any)).collect();
        let result = visitor.visit_map(Fields { probe: &self, names, fields: &mut fields, next: 0 });
        *self.found = TypeSchema::Struct { name: name.to_owned(), fields };
        result
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(FirstVariant { probe: self, name: variants.first().copied().unwrap_or_default() })
    }

    forward_to_deserialize_any! { i128 u128 unit unit_struct identifier ignored_any }
}

/// Elements of a sequence, which all have the same type.
struct Items<'p, 'q> {
    probe: &'q Probe<'p>,
    item: &'q mut TypeSchema,
    left: usize,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.probe.part(self.item)).map(Some)
    }
}

/// Elements of a tuple, each with its own type.
struct Elements<'p, 'q> {
    probe: &'q Probe<'p>,
    elements: &'q mut [TypeSchema],
    next: usize,
    length: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.next == self.length {
            return Ok(None);
        }
        let mut beyond = TypeSchema::Any;
        let element = self.elements.get_mut(self.next).unwrap_or(&mut beyond);
        self.next += 1;
        seed.deserialize(self.probe.part(element)).map(Some)
    }
}

/// Only entry of a map.
struct Entries<'p, 'q> {
    probe: &'q Probe<'p>,
    key: &'q mut TypeSchema,
    value: &'q mut TypeSchema,
    done: bool,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        seed.deserialize(self.probe.part(self.key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.probe.part(self.value))
    }
}

/// Fields of a struct by name, one after the other.
struct Fields<'p, 'q> {
    probe: &'q Probe<'p>,
    names: &'static [&'static str],
    fields: &'q mut [(String, TypeSchema)],
    next: usize,
}

impl<'de> MapAccess<'de> for Fields<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.get(self.next) else { return Ok(None) };
        self.next += 1;
        seed.deserialize((*name).into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.next.checked_sub(1).and_then(|at| self.fields.get_mut(at)) {
            Some((_, type_schema)) => seed.deserialize(self.probe.part(type_schema)),
            None => Err(serde::de::Error::custom("a value without a name")),
        }
    }
}

/// First variant, with any contents: an enum has no schema.
struct FirstVariant<'p> {
    probe: Probe<'p>,
    name: &'static str,
}

impl<'de, 'p> EnumAccess<'de> for FirstVariant<'p> {
    type Error = Error;
    type Variant = Probe<'p>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Probe<'p>), Error> {
        let name: serde::de::value::StrDeserializer<'_, Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.probe))
    }
}

impl<'de> VariantAccess<'de> for Probe<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        // The part is mandatory, so this ends the whole schema.
        if self.depth > 4 * DEPTH || self.left.get() == 0 {
            return Err(serde::de::Error::custom("the type is too deeply recursive"));
        }
        seed.deserialize(self.part(&mut TypeSchema::Any))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Items { probe: &self, item: &mut TypeSchema::Any, left: length })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut fields = vec![(String::new(), TypeSchema::Any); names.len()];
        visitor.visit_map(Fields { probe: &self, names, fields: &mut fields, next: 0 })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    #[expect(dead_code, reason = "only its shape is looked at")]
    struct Node {
        id: u32,
        name: Option<String>,
        weights: Vec<f64>,
        children: Vec<Self>,
        labels: BTreeMap<String, bool>,
        place: (f32, String),
        color: Color,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape is looked at")]
    enum Color {
        Gray(u8),
        Named { name: String },
    }

    fn fields(type_schema: &TypeSchema) -> Vec<(&str, &TypeSchema)> {
        let TypeSchema::Struct { fields, .. } = type_schema else { panic!("{type_schema:?}") };
        fields.iter().map(|(name, type_schema)| (name.as_str(), type_schema)).collect()
    }

    #[test]
    fn schema_of_a_plain_type_lists_its_fields() {
        let type_schema = from_type::<Node>();
        let fields = fields(&type_schema);
        let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["Id", "Name", "Weights", "Children", "Labels", "Place", "Color"]);
        assert_eq!(fields[0].1, &TypeSchema::Uint(32));
        assert_eq!(fields[1].1, &TypeSchema::Optional(Box::new(TypeSchema::String)));
        assert_eq!(fields[2].1, &TypeSchema::List(Box::new(TypeSchema::Float(64))));
        let TypeSchema::List(child) = fields[3].1 else { panic!("{fields:?}") };
        assert!(matches!(&**child, TypeSchema::Struct { name, .. } if name == "Node"));
        assert_eq!(fields[4].1, &TypeSchema::Map(Box::new(TypeSchema::String), Box::new(TypeSchema::Bool)));
        assert_eq!(fields[5].1, &TypeSchema::Tuple(vec![TypeSchema::Float(32), TypeSchema::String]));
        assert_eq!(fields[6].1, &TypeSchema::Any);
    }

    #[test]
    fn schema_of_a_type_that_rejects_placeholders_is_partial() {
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "only its shape is looked at")]
        struct AnyAsString {
            before: i8,
            address: std::net::IpAddr,
            behind: i8,
        }
        let type_schema = from_type::<AnyAsString>();
        let type_schemas: Vec<_> =
            fields(&type_schema).into_iter().map(|(_, type_schema)| type_schema.clone()).collect();
        assert_eq!(type_schemas, [TypeSchema::Int(8), TypeSchema::String, TypeSchema::Any]);
    }

    #[test]
    fn fields_are_named_as_in_go() {
        assert_eq!(go_name("message"), "Message");
        assert_eq!(go_name("log_id2"), "LogId2");
        assert_eq!(go_name("A"), "A");
    }
}

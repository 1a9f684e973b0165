//! serde deserializer for gob.
//!
//! Decoding follows the sent type; the receiver's type must be compatible with it by Go's rules (`compatibleType` in
//! `encoding/gob/decode.go`): signed integers are not compatible with unsigned ones, nor texts with bytes; pointers are
//! ignored. A struct's fields are matched by name: unknown fields are skipped, missing ones are zero.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::number::Cursor;
use super::time::Time;
use super::types::{Fields, Kind, Opaque, Table};
use super::value_walk::{LONGEST_NAME, singleton};
use super::zero::Zero;
use super::{Error, Limits};

/// Decodes a value whose type is known and whose definitions are all in `table`.
pub(super) fn value<T: DeserializeOwned>(
    definitions: &[u8],
    table: &Table,
    of: i32,
    content: Cursor<'_>,
) -> Result<T, Error> {
    let mut decoder = Decoder::new(definitions, table, content);
    decoder.top(of)?;
    T::deserialize(SentValue { decoder: &mut decoder, of, top: true })
}

/// Decodes a value with one member for each of `count` arguments.
pub(super) fn arguments<T: DeserializeOwned>(
    mut decoder: Decoder<'_, '_>,
    of: i32,
    count: usize,
) -> Result<T, Error> {
    let found = match decoder.kind(of)? {
        Kind::Struct(fields) => Some(fields.len()),
        Kind::Array { .. } | Kind::Slice { .. } => Some(decoder.cursor.ahead().count(1)?),
        _ => None,
    };
    match found {
        Some(found) if found != count => Err(Error::wrong_count(count, found)),
        _ => T::deserialize(SentValue { decoder: &mut decoder, of, top: true }),
    }
}

/// Incremental decoder of a value's bytes.
pub(crate) struct Decoder<'t, 'de> {
    definitions: &'t [u8],
    table: &'t Table,
    pub(crate) cursor: Cursor<'de>,
    /// Remaining nesting depth.
    depth: usize,
    /// The field being decoded, for error texts.
    pub(crate) field: &'t str,
}

impl<'t, 'de> Decoder<'t, 'de> {
    pub(super) fn new(definitions: &'t [u8], table: &'t Table, cursor: Cursor<'de>) -> Self {
        Self { definitions, table, cursor, depth: Limits::default().depth, field: "" }
    }

    /// Returns the kind of a type.
    pub(crate) fn kind(&self, of: i32) -> Result<Kind, Error> {
        self.table.kind(of)
    }

    /// Iterates over the names and types of a struct's fields.
    pub(crate) fn fields(&self, fields: Fields) -> impl Iterator<Item = (&'t str, i32)> {
        self.table.fields(self.definitions, fields)
    }

    /// Returns the name and type of a field.
    pub(crate) fn named_field(&self, fields: Fields, index: i64) -> Result<(&'t str, i32), Error> {
        self.table.named_field(self.definitions, fields, index)
    }

    /// Reads the start of a top-level value: one that is not a struct has a leading zero.
    pub(super) fn top(&mut self, of: i32) -> Result<(), Error> {
        match self.table.kind(of)? {
            Kind::Struct(_) => Ok(()),
            _ => singleton(&mut self.cursor),
        }
    }

    /// Runs `read` with one level less of remaining depth.
    fn deeper<R>(&mut self, read: impl FnOnce(&mut Self) -> Result<R, Error>) -> Result<R, Error> {
        self.depth = self.depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        let result = read(self)?;
        self.depth += 1;
        Ok(result)
    }

    /// Returns the next field of a struct, or `None` at its end, which the end of the bytes is too.
    pub(crate) fn next_field(&mut self, fields: Fields, last: i64) -> Result<Option<i64>, Error> {
        if self.cursor.is_empty() {
            return Ok(None);
        }
        match self.cursor.uint()? {
            0 => Ok(None),
            delta => fields.after(last, delta).map(Some),
        }
    }

    /// Returns the number of elements; each takes at least one byte.
    pub(crate) fn elements(&mut self, kind: Kind) -> Result<(i32, usize), Error> {
        let count = self.cursor.count(1)?;
        match kind {
            Kind::Array { elem, len } if len == count as u64 => Ok((elem, count)),
            Kind::Array { .. } => Err(Error::new("length mismatch in decodeArray")),
            Kind::Slice { elem } => Ok((elem, count)),
            _ => Err(Error::unknown_type()),
        }
    }

    /// Returns the name and number of the type in an interface, or `None` if it is nil.
    fn concrete_type(&mut self) -> Result<Option<(&str, i32)>, Error> {
        let name = self.cursor.text()?;
        if name.is_empty() {
            return Ok(None);
        }
        if name.len() > LONGEST_NAME {
            return Err(Error::new(format!("name too long ({} bytes)", name.len())));
        }
        let of = self.cursor.id()?;
        self.cursor.uint()?;
        self.top(of)?;
        Ok(Some((name, of)))
    }

    /// Skips a value.
    pub(crate) fn skip(&mut self, of: i32) -> Result<(), Error> {
        match self.table.kind(of)? {
            Kind::Bool | Kind::Int | Kind::Uint | Kind::Float => self.cursor.uint().map(drop),
            Kind::Complex => self.cursor.uint().and_then(|_| self.cursor.uint()).map(drop),
            Kind::Bytes | Kind::String | Kind::Opaque(_) => self.cursor.bytes().map(drop),
            Kind::Interface => match self.concrete_type()?.map(|(_, of)| of) {
                None => Ok(()),
                Some(of) => self.deeper(|inner| inner.skip(of)),
            },
            kind @ (Kind::Array { .. } | Kind::Slice { .. }) => {
                let (elem, count) = self.elements(kind)?;
                self.deeper(|inner| (0..count).try_for_each(|_| inner.skip(elem)))
            }
            Kind::Map { key, elem } => {
                let count = self.cursor.count(2)?;
                self.deeper(|inner| {
                    (0..count).try_for_each(|_| inner.skip(key).and_then(|()| inner.skip(elem)))
                })
            }
            Kind::Struct(fields) => self.deeper(|inner| {
                let mut last = -1;
                while let Some(index) = inner.next_field(fields, last)? {
                    inner.skip(inner.table.field(fields, index)?)?;
                    last = index;
                }
                Ok(())
            }),
        }
    }

    #[cold]
    pub(crate) fn mismatch(&self, sent: Kind, wanted: &str) -> Error {
        let sent = match sent {
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Uint => "uint",
            Kind::Float => "float",
            Kind::Bytes => "bytes",
            Kind::String => "string",
            Kind::Complex => "complex",
            Kind::Interface => "interface",
            Kind::Array { .. } => "array",
            Kind::Slice { .. } => "slice",
            Kind::Map { .. } => "map",
            Kind::Struct(_) => "struct",
            Kind::Opaque(_) => "value with an encoding of its own",
        };
        match self.field {
            "" => Error::new(format!("decoding into {wanted}, received {sent}")),
            field => Error::new(format!("wrong type ({wanted}) for received field {field} ({sent})")),
        }
    }
}

/// A sent value of this type.
struct SentValue<'a, 't, 'de> {
    decoder: &'a mut Decoder<'t, 'de>,
    of: i32,
    /// It is top-level, or the sole content of an interface.
    top: bool,
}

impl<'a, 't, 'de> SentValue<'a, 't, 'de> {
    fn kind(&self) -> Result<Kind, Error> {
        self.decoder.table.kind(self.of)
    }

    /// Passes the sent value to `read`, unwrapping interfaces; a nil interface becomes the zero value.
    fn read<V: Visitor<'de>>(
        mut self,
        visitor: V,
        zero: impl FnOnce(Zero, V) -> Result<V::Value, Error>,
        read: impl FnOnce(Self, Kind, V) -> Result<V::Value, Error>,
    ) -> Result<V::Value, Error> {
        let mut kind = self.kind()?;
        let mut depth = 0;
        while kind == Kind::Interface {
            match self.decoder.concrete_type()? {
                None => return zero(Zero::any(), visitor),
                Some((_, of)) => self.of = of,
            }
            self.top = true;
            kind = self.kind()?;
            depth += 1;
            if depth > self.decoder.depth {
                return Err(Error::too_deep());
            }
        }
        read(self, kind, visitor)
    }

    fn int(self, wanted: &str) -> Result<i64, Error> {
        match self.kind()? {
            Kind::Int => self.decoder.cursor.int(),
            kind => Err(self.decoder.mismatch(kind, wanted)),
        }
    }

    fn uint(self, wanted: &str) -> Result<u64, Error> {
        match self.kind()? {
            Kind::Uint => self.decoder.cursor.uint(),
            kind => Err(self.decoder.mismatch(kind, wanted)),
        }
    }

    /// Whether a self-encoding value is a time.
    fn is_time(&self) -> Result<bool, Error> {
        let Decoder { definitions, table, cursor, .. } = &*self.decoder;
        let name = table.find(self.of).map_or("", |definition| table.name(definitions, definition));
        Ok(Time::for_type(name, cursor.ahead().bytes()?).is_some())
    }

    /// Decodes a list of elements of a single type.
    fn list<V: Visitor<'de>>(self, kind: Kind, visitor: V) -> Result<V::Value, Error> {
        let (elem, left) = self.decoder.elements(kind)?;
        self.decoder.deeper(|decoder| {
            let mut elements = Elements { decoder, elem, left };
            let value = visitor.visit_seq(&mut elements)?;
            elements.finish()?;
            Ok(value)
        })
    }

    fn map<V: Visitor<'de>>(self, key: i32, elem: i32, visitor: V) -> Result<V::Value, Error> {
        let left = self.decoder.cursor.count(2)?;
        self.decoder.deeper(|decoder| {
            let mut pairs = Pairs { decoder, key, elem, left };
            let value = visitor.visit_map(&mut pairs)?;
            pairs.finish()?;
            Ok(value)
        })
    }

    /// Decodes a struct of which the receiver knows the fields `wanted`.
    fn fields<V: Visitor<'de>>(
        self,
        fields: Fields,
        wanted: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.top && !wanted.is_empty() && fields.len() > 0 {
            let mut sent = self.decoder.table.fields(self.decoder.definitions, fields);
            if !sent.any(|(name, _)| wanted.contains(&name)) {
                return Err(Error::new("type mismatch: no fields matched compiling decoder"));
            }
        }
        self.decoder.deeper(|decoder| {
            let mut named = NamedFields {
                decoder,
                fields,
                last: -1,
                of: 0,
                wanted,
                next: 0,
                seen: SentFields::default(),
                ended: false,
            };
            let value = visitor.visit_map(&mut named)?;
            named.finish()?;
            Ok(value)
        })
    }

    /// Decodes a struct as a list of its fields, for receivers without field names.
    fn positions<V: Visitor<'de>>(self, fields: Fields, visitor: V) -> Result<V::Value, Error> {
        self.decoder.deeper(|decoder| {
            let mut positions = PositionalFields { decoder, fields, next: 0, sent: Some(-1) };
            positions.advance()?;
            let value = visitor.visit_seq(&mut positions)?;
            positions.finish()?;
            Ok(value)
        })
    }
}

macro_rules! number {
    ($($method:ident $visit:ident $read:ident $type:ident),+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.read(visitor, Zero::$method, |sent, _, visitor| {
                let field = sent.decoder.field;
                let number = sent.$read(stringify!($type))?;
                visitor.$visit(number.try_into().map_err(|_| Error::out_of_range(field))?)
            })
        }
    )+};
}

impl<'de> Deserializer<'de> for SentValue<'_, '_, 'de> {
    type Error = Error;

    number! {
        deserialize_i8 visit_i8 int i8,
        deserialize_i16 visit_i16 int i16,
        deserialize_i32 visit_i32 int i32,
        deserialize_i64 visit_i64 int i64,
        deserialize_u8 visit_u8 uint u8,
        deserialize_u16 visit_u16 uint u16,
        deserialize_u32 visit_u32 uint u32,
        deserialize_u64 visit_u64 uint u64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(visitor, Zero::deserialize_bool, |sent, kind, visitor| match kind {
            Kind::Bool => visitor.visit_bool(sent.decoder.cursor.uint()? != 0),
            kind => Err(sent.decoder.mismatch(kind, "bool")),
        })
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(visitor, Zero::deserialize_f32, |sent, kind, visitor| match kind {
            Kind::Float => {
                let value = sent.decoder.cursor.float()?;
                if value.is_finite() && value.abs() > f32::MAX.into() {
                    return Err(Error::out_of_range(sent.decoder.field));
                }
                visitor.visit_f32(value as f32)
            }
            kind => Err(sent.decoder.mismatch(kind, "f32")),
        })
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(visitor, Zero::deserialize_f64, |sent, kind, visitor| match kind {
            Kind::Float => visitor.visit_f64(sent.decoder.cursor.float()?),
            kind => Err(sent.decoder.mismatch(kind, "f64")),
        })
    }

    /// Go's rune, an int32.
    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(visitor, Zero::deserialize_char, |sent, _, visitor| {
            let field = sent.decoder.field;
            let rune = u32::try_from(sent.int("char")?).ok().and_then(char::from_u32);
            visitor.visit_char(rune.ok_or_else(|| Error::out_of_range(field))?)
        })
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(visitor, Zero::deserialize_str, |sent, kind, visitor| match kind {
            Kind::String | Kind::Opaque(Opaque::Text) => {
                let bytes = sent.decoder.cursor.bytes()?;
                match simdutf8::basic::from_utf8(bytes) {
                    Ok(text) => visitor.visit_borrowed_str(text),
                    // Go's strings need not be UTF-8; a type that accepts other bytes gets them.
                    Err(_) => visitor.visit_borrowed_bytes(bytes),
                }
            }
            Kind::Opaque(_) => {
                let time = Time::from_binary(sent.decoder.cursor.bytes()?)?;
                visitor.visit_string(time.to_string())
            }
            kind => Err(sent.decoder.mismatch(kind, "string")),
        })
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(visitor, Zero::deserialize_bytes, |sent, kind, visitor| match kind {
            Kind::Bytes | Kind::Opaque(_) => visitor.visit_borrowed_bytes(sent.decoder.cursor.bytes()?),
            kind => Err(sent.decoder.mismatch(kind, "bytes")),
        })
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    /// Pointers are flattened: a sent value is present. Only an interface can be nil.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.kind()? == Kind::Interface && self.decoder.cursor.ahead().uint()? == 0 {
            self.decoder.cursor.uint()?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    /// Go's empty struct, which is compatible with any struct.
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(visitor, Zero::deserialize_unit, |sent, kind, visitor| match kind {
            Kind::Struct(_) => {
                sent.decoder.skip(sent.of)?;
                visitor.visit_unit()
            }
            kind => Err(sent.decoder.mismatch(kind, "struct")),
        })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(visitor, Zero::deserialize_seq, |sent, kind, visitor| match kind {
            Kind::Bytes | Kind::Opaque(_) => {
                let bytes = sent.decoder.cursor.bytes()?;
                visitor.visit_seq(serde::de::value::SeqDeserializer::new(bytes.iter().copied()))
            }
            Kind::Complex => {
                let parts = [sent.decoder.cursor.float()?, sent.decoder.cursor.float()?];
                visitor.visit_seq(serde::de::value::SeqDeserializer::new(parts.into_iter()))
            }
            Kind::Struct(fields) => sent.positions(fields, visitor),
            Kind::Slice { .. } | Kind::Array { .. } => sent.list(kind, visitor),
            kind => Err(sent.decoder.mismatch(kind, "list")),
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        let zero = |zero: Zero, visitor: V| zero.deserialize_tuple(length, visitor);
        self.read(visitor, zero, |sent, _, visitor| sent.deserialize_seq(visitor))
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
        self.read(visitor, Zero::deserialize_map, |sent, kind, visitor| match kind {
            Kind::Map { key, elem } => sent.map(key, elem, visitor),
            kind => Err(sent.decoder.mismatch(kind, "map")),
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        wanted: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let zero = |zero: Zero, visitor: V| zero.deserialize_struct(name, wanted, visitor);
        self.read(visitor, zero, |sent, kind, visitor| match kind {
            Kind::Struct(fields) => sent.fields(fields, wanted, visitor),
            kind => Err(sent.decoder.mismatch(kind, name)),
        })
    }

    /// Decodes an interface, whose variants are named after the registered types; or a unit variant by its name or its
    /// number.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let number = |number: Option<usize>| {
            let variant = number.and_then(|number| variants.get(number));
            variant.copied().ok_or_else(|| Error::new(format!("no variant of {name} has this number")))
        };
        let decoder = self.decoder;
        match decoder.table.kind(self.of)? {
            Kind::String => visitor.visit_enum(decoder.cursor.text()?.into_deserializer()),
            Kind::Int => {
                let variant = number(decoder.cursor.int()?.try_into().ok())?;
                visitor.visit_enum(variant.into_deserializer())
            }
            Kind::Uint => {
                let variant = number(decoder.cursor.uint()?.try_into().ok())?;
                visitor.visit_enum(variant.into_deserializer())
            }
            Kind::Interface => {
                let held = decoder.cursor.ahead().text()?.to_owned();
                let Some((_, of)) = decoder.concrete_type()? else {
                    return Err(Error::new(format!("a nil interface is no {name}")));
                };
                // A unit variant that was sent as a plain string.
                if held == "string" && !variants.contains(&"string") {
                    return visitor.visit_enum(decoder.cursor.text()?.into_deserializer());
                }
                decoder.deeper(|decoder| visitor.visit_enum(InterfaceValue { decoder, name: held, of }))
            }
            kind => Err(decoder.mismatch(kind, name)),
        }
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(visitor, Zero::deserialize_any, |sent, kind, visitor| match kind {
            Kind::Bool => sent.deserialize_bool(visitor),
            Kind::Int => sent.deserialize_i64(visitor),
            Kind::Uint => sent.deserialize_u64(visitor),
            Kind::Float => sent.deserialize_f64(visitor),
            Kind::String | Kind::Opaque(Opaque::Text) => sent.deserialize_str(visitor),
            Kind::Opaque(_) if sent.is_time()? => sent.deserialize_str(visitor),
            // Self-describing receivers usually accept lists, but rarely bytes.
            Kind::Bytes | Kind::Opaque(_) => sent.deserialize_seq(visitor),
            Kind::Complex | Kind::Slice { .. } | Kind::Array { .. } => sent.deserialize_seq(visitor),
            Kind::Map { key, elem } => sent.map(key, elem, visitor),
            Kind::Struct(fields) => sent.fields(fields, &[], visitor),
            Kind::Interface => Err(Error::unknown_type()),
        })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.decoder.skip(self.of)?;
        visitor.visit_unit()
    }
}

struct Elements<'a, 't, 'de> {
    decoder: &'a mut Decoder<'t, 'de>,
    elem: i32,
    left: usize,
}

impl Elements<'_, '_, '_> {
    /// Skips what the receiver did not read.
    fn finish(self) -> Result<(), Error> {
        (0..self.left).try_for_each(|_| self.decoder.skip(self.elem))
    }
}

impl<'de> SeqAccess<'de> for &mut Elements<'_, '_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        if self.decoder.cursor.is_empty() {
            return Err(Error::new("length exceeds input size"));
        }
        seed.deserialize(SentValue { decoder: self.decoder, of: self.elem, top: false }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Pairs<'a, 't, 'de> {
    decoder: &'a mut Decoder<'t, 'de>,
    key: i32,
    elem: i32,
    left: usize,
}

impl Pairs<'_, '_, '_> {
    fn finish(self) -> Result<(), Error> {
        (0..self.left)
            .try_for_each(|_| self.decoder.skip(self.key).and_then(|()| self.decoder.skip(self.elem)))
    }
}

impl<'de> MapAccess<'de> for &mut Pairs<'_, '_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(SentValue { decoder: self.decoder, of: self.key, top: false }).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(SentValue { decoder: self.decoder, of: self.elem, top: false })
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// Fields of a struct: the sent ones, then the receiver's missing ones, as zeros.
struct NamedFields<'a, 't, 'de> {
    decoder: &'a mut Decoder<'t, 'de>,
    fields: Fields,
    last: i64,
    /// Type of the field whose name was returned; 0 for a zero value.
    of: i32,
    wanted: &'static [&'static str],
    /// Where the search for the next name starts, and later for the next zero.
    next: usize,
    seen: SentFields,
    ended: bool,
}

impl<'t> NamedFields<'_, 't, '_> {
    /// Returns the next sent field that the receiver knows.
    fn next_sent(&mut self) -> Result<Option<&'t str>, Error> {
        while let Some(index) = self.decoder.next_field(self.fields, self.last)? {
            self.last = index;
            let decoder = &mut *self.decoder;
            let (name, of) = decoder.table.named_field(decoder.definitions, self.fields, index)?;
            self.of = of;
            // A receiver without field names gets all fields.
            if self.wanted.is_empty() {
                return Ok(Some(name));
            }
            match self.index_of(name) {
                Some(index) => {
                    self.seen.insert(index);
                    self.next = index + 1;
                    self.decoder.field = name;
                    return Ok(Some(name));
                }
                None => self.decoder.skip(of)?,
            }
        }
        Ok(None)
    }

    /// Returns the index of a field; fields are usually in the same order on both sides.
    fn index_of(&self, name: &str) -> Option<usize> {
        if self.wanted.get(self.next).is_some_and(|&wanted| wanted == name) {
            return Some(self.next);
        }
        self.wanted.iter().position(|&wanted| wanted == name)
    }

    /// Returns the next field of the receiver that was not sent.
    fn next_missing(&mut self) -> Option<&'static str> {
        while let Some(&name) = self.wanted.get(self.next) {
            self.next += 1;
            if !self.seen.contains(self.next - 1) {
                return Some(name);
            }
        }
        None
    }

    /// Returns the declared type of a field, if any, whose zero value was not sent.
    fn declared_type(&self, name: &str) -> Option<i32> {
        let mut fields = self.decoder.table.fields(self.decoder.definitions, self.fields);
        fields.find(|&(declared, _)| declared == name).map(|(_, of)| of)
    }

    fn finish(mut self) -> Result<(), Error> {
        while !self.ended && self.next_sent()?.is_some() {
            self.decoder.skip(self.of)?;
        }
        Ok(())
    }
}

impl<'de> MapAccess<'de> for &mut NamedFields<'_, '_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if !self.ended {
            if let Some(name) = self.next_sent()? {
                return seed.deserialize(StrDeserializer::<Error>::new(name)).map(Some);
            }
            (self.ended, self.next) = (true, 0);
        }
        let Some(name) = self.next_missing() else { return Ok(None) };
        self.of = self.declared_type(name).unwrap_or_default();
        self.decoder.field = name;
        seed.deserialize(StrDeserializer::<Error>::new(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        if !self.ended {
            return seed.deserialize(SentValue { decoder: self.decoder, of: self.of, top: false });
        }
        let zero = match self.of {
            0 => Zero::any(),
            of => Zero::new(self.decoder.table.kind(of)?),
        };
        seed.deserialize(zero).map_err(|error| match self.of {
            0 => error,
            _ => Error::new(format!("{error}, for received field {}", self.decoder.field)),
        })
    }
}

/// Set of the receiver's fields that were sent.
#[derive(Default)]
struct SentFields {
    first: u64,
    others: Vec<bool>,
}

impl SentFields {
    fn insert(&mut self, index: usize) {
        match index.checked_sub(64) {
            None => self.first |= 1 << index,
            Some(index) => {
                if self.others.len() <= index {
                    self.others.resize(index + 1, false);
                }
                if let Some(seen) = self.others.get_mut(index) {
                    *seen = true;
                }
            }
        }
    }

    fn contains(&self, index: usize) -> bool {
        match index.checked_sub(64) {
            None => self.first >> index & 1 == 1,
            Some(index) => self.others.get(index).copied().unwrap_or_default(),
        }
    }
}

/// Fields of a struct without their names.
struct PositionalFields<'a, 't, 'de> {
    decoder: &'a mut Decoder<'t, 'de>,
    fields: Fields,
    next: i64,
    /// The next sent field, or `None` after the last.
    sent: Option<i64>,
}

impl PositionalFields<'_, '_, '_> {
    fn advance(&mut self) -> Result<(), Error> {
        if let Some(last) = self.sent {
            self.sent = self.decoder.next_field(self.fields, last)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Error> {
        while let Some(index) = self.sent {
            let of = self.decoder.table.field(self.fields, index)?;
            self.decoder.skip(of)?;
            self.advance()?;
        }
        Ok(())
    }
}

impl<'de> SeqAccess<'de> for &mut PositionalFields<'_, '_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if self.next >= self.fields.len() as i64 {
            return Ok(None);
        }
        let of = self.decoder.table.field(self.fields, self.next)?;
        let is_here = self.sent == Some(self.next);
        self.next += 1;
        if !is_here {
            return seed.deserialize(Zero::new(self.decoder.table.kind(of)?)).map(Some);
        }
        let value = seed.deserialize(SentValue { decoder: self.decoder, of, top: false })?;
        self.advance()?;
        Ok(Some(value))
    }
}

/// Content of an interface, under the name of its type.
struct InterfaceValue<'a, 't, 'de> {
    decoder: &'a mut Decoder<'t, 'de>,
    name: String,
    of: i32,
}

impl<'a, 't, 'de> EnumAccess<'de> for InterfaceValue<'a, 't, 'de> {
    type Error = Error;
    type Variant = SentValue<'a, 't, 'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), Error> {
        let variant = seed.deserialize(StrDeserializer::<Error>::new(&self.name))?;
        Ok((variant, SentValue { decoder: self.decoder, of: self.of, top: true }))
    }
}

impl<'de> VariantAccess<'de> for SentValue<'_, '_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.decoder.skip(self.of)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_struct("", fields, visitor)
    }
}

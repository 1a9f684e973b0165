//! serde deserializer, driven by the plan that was derived from the same type, so that both agree.

use serde_core::de::value::U32Deserializer;
use serde_core::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde_core::forward_to_deserialize_any;

use super::encode_plan::{Id, Member, Node, Plan};
use super::input::Input;
use super::types::{Character, Scalar};
use super::{Error, fast};

impl Plan {
    /// Decodes a value. Bytes after it are ignored, as by peers: later versions of the type add members there
    /// (`struct_pack::compatible`).
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] if the bytes have another type, and the other errors of malformed bytes.
    pub fn decode<'de, T: Deserialize<'de>>(&self, bytes: &'de [u8]) -> Result<T, Error> {
        let mut input = Input::open(self.code(), self.literal(), bytes)?;
        T::deserialize(Decoder::new(self, &mut input))
    }
}

/// Decoder of one value.
pub(super) struct Decoder<'p, 'i, 'de> {
    plan: &'p Plan,
    id: Id,
    input: &'i mut Input<'de>,
}

impl<'p, 'i, 'de> Decoder<'p, 'i, 'de> {
    pub(super) fn new(plan: &'p Plan, input: &'i mut Input<'de>) -> Self {
        Self { plan, id: Id::ROOT, input }
    }

    fn node(&self) -> &'p Node {
        self.plan.node(self.id)
    }

    fn scalar<V: Visitor<'de>>(self, scalar: Scalar, visitor: V) -> Result<V::Value, Error> {
        let input = self.input;
        match scalar {
            Scalar::I8 => visitor.visit_i8(i8::from_le_bytes(input.take_chunk()?)),
            Scalar::I16 => visitor.visit_i16(i16::from_le_bytes(input.take_chunk()?)),
            Scalar::I32 => visitor.visit_i32(i32::from_le_bytes(input.take_chunk()?)),
            Scalar::I64 => visitor.visit_i64(i64::from_le_bytes(input.take_chunk()?)),
            Scalar::I128 => visitor.visit_i128(i128::from_le_bytes(input.take_chunk()?)),
            Scalar::U8 | Scalar::Char => visitor.visit_u8(input.byte()?),
            Scalar::U16 | Scalar::Char16 => visitor.visit_u16(u16::from_le_bytes(input.take_chunk()?)),
            Scalar::U32 => visitor.visit_u32(u32::from_le_bytes(input.take_chunk()?)),
            Scalar::U64 => visitor.visit_u64(u64::from_le_bytes(input.take_chunk()?)),
            Scalar::U128 => visitor.visit_u128(u128::from_le_bytes(input.take_chunk()?)),
            Scalar::Bool => visitor.visit_bool(input.flag()?),
            Scalar::Char32 => visitor.visit_char(character(u32::from_le_bytes(input.take_chunk()?))?),
            Scalar::F32 => visitor.visit_f32(f32::from_le_bytes(input.take_chunk()?)),
            Scalar::F64 => visitor.visit_f64(f64::from_le_bytes(input.take_chunk()?)),
            // Peers truncate values that are too large.
            Scalar::VarI32 => visitor.visit_i32(input.zigzag()? as i32),
            Scalar::VarU32 => visitor.visit_u32(input.varint()? as u32),
            Scalar::VarI64 => visitor.visit_i64(input.zigzag()?),
            Scalar::VarU64 => visitor.visit_u64(input.varint()?),
            Scalar::FastI32 | Scalar::FastI64 | Scalar::FastU32 | Scalar::FastU64 => {
                Err(Error::ty("an integer of this kind occurs only in a struct"))
            }
        }
    }

    fn string<V: Visitor<'de>>(self, character: Character, visitor: V) -> Result<V::Value, Error> {
        let count = self.input.count(character.size())?;
        let bytes = self.input.take(count * character.size())?;
        match character {
            Character::Char => match simdutf8::basic::from_utf8(bytes) {
                Ok(text) => visitor.visit_borrowed_str(text),
                Err(_) => visitor.visit_borrowed_bytes(bytes),
            },
            Character::Char16 => visitor.visit_string(from_utf16(bytes)?),
            Character::Char32 => visitor.visit_string(from_utf32(bytes)?),
        }
    }

    fn items<V: Visitor<'de>>(self, item: Id, left: usize, visitor: V) -> Result<V::Value, Error> {
        let mut items = Items { plan: self.plan, item, left, input: self.input };
        items.input.enter()?;
        let value = visitor.visit_seq(&mut items)?;
        while items.next_element::<IgnoredAny>()?.is_some() {}
        items.input.leave();
        Ok(value)
    }

    fn entries<V: Visitor<'de>>(
        self,
        entry: [Member; 2],
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut entries = Entries { plan: self.plan, entry, left, input: self.input };
        entries.input.enter()?;
        let value = visitor.visit_map(&mut entries)?;
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        entries.input.leave();
        Ok(value)
    }

    fn members<V: Visitor<'de>>(
        self,
        members: &'p [Member],
        scalars: &[Scalar],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let values = match scalars {
            [] => Vec::new(),
            _ => fast::read(scalars, self.input)?,
        };
        let mut members =
            Members { plan: self.plan, left: members.iter(), fast: values.into_iter(), input: self.input };
        members.input.enter()?;
        let value = visitor.visit_seq(&mut members)?;
        while members.next_element::<IgnoredAny>()?.is_some() {}
        members.input.leave();
        Ok(value)
    }

    fn visit_alternative<V: Visitor<'de>>(self, index: u32, id: Id, visitor: V) -> Result<V::Value, Error> {
        let Self { plan, input, .. } = self;
        input.enter()?;
        let value = visitor
            .visit_enum(ChosenAlternative { index, inner: Decoder { plan, id, input: &mut *input } })?;
        input.leave();
        Ok(value)
    }

    fn optional<V: Visitor<'de>>(self, id: Id, visitor: V) -> Result<V::Value, Error> {
        let Self { plan, input, .. } = self;
        if !input.flag()? {
            return visitor.visit_none();
        }
        input.enter()?;
        let value = visitor.visit_some(Decoder { plan, id, input: &mut *input })?;
        input.leave();
        Ok(value)
    }
}

impl<'de> Deserializer<'de> for Decoder<'_, '_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node() {
            Node::Unit { size } => {
                self.input.take(*size)?;
                visitor.visit_unit()
            }
            Node::Scalar(scalar) => self.scalar(*scalar, visitor),
            Node::String(character) => self.string(*character, visitor),
            Node::Array { item, count, min_size } => {
                self.input.admit(*count, *min_size)?;
                self.items(*item, *count, visitor)
            }
            Node::List { item, min_size } => {
                let count = self.input.count(*min_size)?;
                self.items(*item, count, visitor)
            }
            Node::Map { entry, min_size } => {
                let count = self.input.count(*min_size)?;
                self.entries(*entry, count, visitor)
            }
            Node::Optional(id) => self.optional(*id, visitor),
            Node::Variant(alternatives) => {
                let index = self.input.byte()?;
                let id = alternatives.get(usize::from(index));
                let id = *id.ok_or(Error::Invalid("a variant holds an alternative that it does not have"))?;
                self.visit_alternative(index.into(), id, visitor)
            }
            Node::Expected { value, error } => match self.input.flag()? {
                true => self.visit_alternative(0, *value, visitor),
                false => self.visit_alternative(1, *error, visitor),
            },
            Node::Struct { members, fast } => self.members(members, fast, visitor),
        }
    }

    /// An enum of unit variants is a number; others are variants.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.node() {
            Node::Scalar(scalar) => {
                let value = self.input.integer(*scalar)?.and_then(|value| u32::try_from(value).ok());
                let value = value.ok_or(Error::Invalid("an enum has a value that is not named"))?;
                visitor.visit_enum(index(value))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node() {
            Node::String(Character::Char) => {
                let length = self.input.count(1)?;
                visitor.visit_borrowed_bytes(self.input.take(length)?)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string option unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'p, 'i, 'de> {
    plan: &'p Plan,
    item: Id,
    left: usize,
    input: &'i mut Input<'de>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(Decoder { plan: self.plan, id: self.item, input: self.input }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Entries<'p, 'i, 'de> {
    plan: &'p Plan,
    entry: [Member; 2],
    left: usize,
    input: &'i mut Input<'de>,
}

impl<'de> Entries<'_, '_, 'de> {
    fn member<S: DeserializeSeed<'de>>(&mut self, member: Member, seed: S) -> Result<S::Value, Error> {
        let value = seed.deserialize(Decoder { plan: self.plan, id: member.id, input: self.input })?;
        self.input.take(member.gap)?;
        Ok(value)
    }
}

impl<'de> MapAccess<'de> for Entries<'_, '_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let [key, _] = self.entry;
        self.member(key, seed).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let [_, value] = self.entry;
        self.member(value, seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Members<'p, 'i, 'de> {
    plan: &'p Plan,
    left: std::slice::Iter<'p, Member>,
    fast: std::vec::IntoIter<i128>,
    input: &'i mut Input<'de>,
}

impl<'de> SeqAccess<'de> for Members<'_, '_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(member) = self.left.next() else { return Ok(None) };
        let value = match self.plan.node(member.id) {
            Node::Scalar(scalar) if scalar.is_fast() => {
                let value = self.fast.next().unwrap_or(0);
                match i64::try_from(value) {
                    Ok(value) => seed.deserialize(value.into_deserializer())?,
                    Err(_) => seed.deserialize((value as u64).into_deserializer())?,
                }
            }
            _ => seed.deserialize(Decoder { plan: self.plan, id: member.id, input: self.input })?,
        };
        self.input.take(member.gap)?;
        Ok(Some(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The chosen alternative of a variant or of an `expected`.
struct ChosenAlternative<'p, 'i, 'de> {
    index: u32,
    inner: Decoder<'p, 'i, 'de>,
}

impl<'p, 'i, 'de> EnumAccess<'de> for ChosenAlternative<'p, 'i, 'de> {
    type Error = Error;
    type Variant = Decoder<'p, 'i, 'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), Error> {
        Ok((seed.deserialize(index(self.index))?, self.inner))
    }
}

impl<'de> VariantAccess<'de> for Decoder<'_, '_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.deserialize_any(IgnoredAny).map(drop)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }
}

fn index(index: u32) -> U32Deserializer<Error> {
    index.into_deserializer()
}

fn character(code: u32) -> Result<char, Error> {
    char::from_u32(code).ok_or(Error::Invalid("a character is not a Unicode scalar value"))
}

fn from_utf16(bytes: &[u8]) -> Result<String, Error> {
    let (units, _) = bytes.as_chunks();
    let units = units.iter().map(|unit| u16::from_le_bytes(*unit));
    char::decode_utf16(units).collect::<Result<_, _>>().map_err(|_| Error::Invalid("a text is no UTF-16"))
}

fn from_utf32(bytes: &[u8]) -> Result<String, Error> {
    let (units, _) = bytes.as_chunks();
    units.iter().map(|unit| character(u32::from_le_bytes(*unit))).collect()
}

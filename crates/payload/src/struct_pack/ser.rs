//! serde serializer, driven by the plan of the type.

use serde_core::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::encode_plan::{Id, Member, Node, Plan};
use super::output::{self, Form, Output, Stop};
use super::types::{Character, Scalar};
use super::{Error, fast};

impl Plan {
    /// Encodes a value.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if the value does not have this type.
    pub fn encode(&self, value: &(impl Serialize + ?Sized), form: Form) -> Result<Vec<u8>, Error> {
        output::write(self.code(), self.literal(), form, |out| value.serialize(Encoder::new(self, out)))
    }
}

/// Encoder of one value.
pub(super) struct Encoder<'p, 'o> {
    plan: &'p Plan,
    id: Id,
    out: &'o mut Output,
}

impl<'p, 'o> Encoder<'p, 'o> {
    pub(super) fn new(plan: &'p Plan, out: &'o mut Output) -> Self {
        Self { plan, id: Id::ROOT, out }
    }

    fn node(&self) -> &'p Node {
        self.plan.node(self.id)
    }

    /// Returns the error of a value that does not match the plan: its type's `Serialize` and `Deserialize` disagree.
    #[cold]
    fn refuse(&self, text: &str) -> Stop {
        Stop::value(match self.node() {
            Node::Scalar(scalar) => format!("{text} is no {}", scalar.as_str()),
            node => format!("{text} where {} is written", node.describe()),
        })
    }

    /// Writes an integer of any type, if it fits into the encoded one.
    fn integer(self, value: i128) -> Result<(), Stop> {
        let Node::Scalar(scalar) = self.node() else { return Err(self.refuse("an integer")) };
        match self.out.integer(*scalar, value) {
            Some(()) => Ok(()),
            None => Err(self.refuse(&value.to_string())),
        }
    }

    /// Writes the index of an enum's alternative.
    fn alternative(self, index: u32) -> Result<Self, Stop> {
        let id = match (self.node(), index) {
            (Node::Variant(alternatives), _) => alternatives.get(index as usize).copied(),
            (Node::Expected { value, .. }, 0) => Some(*value),
            (Node::Expected { error, .. }, 1) => Some(*error),
            _ => None,
        };
        let Some(id) = id else { return Err(self.refuse("an alternative of an enum")) };
        let first = match self.node() {
            Node::Expected { .. } => u8::from(index == 0),
            // No variant in a plan has more than 255 alternatives.
            _ => index as u8,
        };
        self.out.put(&[first]);
        Ok(Self { id, ..self })
    }

    fn compound(self, likely: Option<usize>) -> Result<Compound<'p, 'o>, Stop> {
        let kind = match self.node() {
            Node::List { item, .. } => Kind::List { item: *item, at: self.out.begin(likely)?, count: 0 },
            Node::Array { item, count, .. } => Kind::Array { item: *item, left: *count },
            Node::Struct { members, fast } => Kind::Struct {
                left: members.iter(),
                scalars: fast,
                at: self.out.bytes.len(),
                values: self.out.fast.len(),
            },
            _ => return Err(self.refuse("a sequence")),
        };
        Ok(Compound { plan: self.plan, kind, out: self.out })
    }
}

/// Writes a scalar directly if the plan has the same type, or after a conversion.
macro_rules! integers {
    ($($serialize:ident $type:ty: $scalar:ident,)*) => {
        $(fn $serialize(self, value: $type) -> Result<(), Stop> {
            match self.node() {
                Node::Scalar(Scalar::$scalar) => {
                    self.out.put(&value.to_le_bytes());
                    Ok(())
                }
                _ => self.integer(value.into()),
            }
        })*
    };
}

impl<'p, 'o> Serializer for Encoder<'p, 'o> {
    type Ok = ();
    type Error = Stop;
    type SerializeSeq = Compound<'p, 'o>;
    type SerializeTuple = Compound<'p, 'o>;
    type SerializeTupleStruct = Compound<'p, 'o>;
    type SerializeTupleVariant = Compound<'p, 'o>;
    type SerializeMap = Entries<'p, 'o>;
    type SerializeStruct = Compound<'p, 'o>;
    type SerializeStructVariant = Compound<'p, 'o>;

    integers! {
        serialize_i8 i8: I8,
        serialize_i16 i16: I16,
        serialize_i32 i32: I32,
        serialize_i64 i64: I64,
        serialize_i128 i128: I128,
        serialize_u8 u8: U8,
        serialize_u16 u16: U16,
        serialize_u32 u32: U32,
        serialize_u64 u64: U64,
    }

    fn serialize_u128(self, value: u128) -> Result<(), Stop> {
        match (self.node(), i128::try_from(value)) {
            (Node::Scalar(Scalar::U128), _) => {
                self.out.put(&value.to_le_bytes());
                Ok(())
            }
            (_, Ok(value)) => self.integer(value),
            (_, Err(_)) => Err(self.refuse(&value.to_string())),
        }
    }

    fn serialize_bool(self, value: bool) -> Result<(), Stop> {
        match self.node() {
            Node::Scalar(Scalar::Bool) => {
                self.out.put(&[value.into()]);
                Ok(())
            }
            _ => Err(self.refuse("a truth value")),
        }
    }

    fn serialize_f32(self, value: f32) -> Result<(), Stop> {
        match self.node() {
            Node::Scalar(Scalar::F32) => {
                self.out.put(&value.to_le_bytes());
                Ok(())
            }
            _ => Err(self.refuse("a float")),
        }
    }

    fn serialize_f64(self, value: f64) -> Result<(), Stop> {
        match self.node() {
            Node::Scalar(Scalar::F64) => {
                self.out.put(&value.to_le_bytes());
                Ok(())
            }
            _ => Err(self.refuse("a double")),
        }
    }

    fn serialize_char(self, value: char) -> Result<(), Stop> {
        self.integer(u32::from(value).into())
    }

    fn serialize_str(self, value: &str) -> Result<(), Stop> {
        match self.node() {
            Node::String(Character::Char) => {
                self.out.length(value.len())?;
                self.out.put(value.as_bytes());
            }
            Node::String(Character::Char16) => {
                self.out.length(value.encode_utf16().count())?;
                value.encode_utf16().for_each(|unit| self.out.put(&unit.to_le_bytes()));
            }
            Node::String(Character::Char32) => {
                self.out.length(value.chars().count())?;
                value.chars().for_each(|unit| self.out.put(&u32::from(unit).to_le_bytes()));
            }
            _ => return Err(self.refuse("a text")),
        }
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Stop> {
        match self.node() {
            Node::String(Character::Char) => {
                self.out.length(value.len())?;
                self.out.put(value);
                Ok(())
            }
            _ => Err(self.refuse("bytes")),
        }
    }

    fn serialize_none(self) -> Result<(), Stop> {
        match self.node() {
            Node::Optional(_) => {
                self.out.put(&[0]);
                Ok(())
            }
            _ => Err(self.refuse("nothing")),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Stop> {
        match self.node() {
            Node::Optional(id) => {
                self.out.put(&[1]);
                value.serialize(Self { id: *id, ..self })
            }
            _ => Err(self.refuse("an optional value")),
        }
    }

    fn serialize_unit(self) -> Result<(), Stop> {
        match self.node() {
            Node::Unit { size } => {
                self.out.zeros(*size);
                Ok(())
            }
            _ => Err(self.refuse("nothing")),
        }
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Stop> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), Stop> {
        match self.node() {
            Node::Scalar(_) => self.integer(index.into()),
            _ => self.alternative(index)?.serialize_unit(),
        }
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        value.serialize(self.alternative(index)?)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Compound<'p, 'o>, Stop> {
        self.compound(length)
    }

    fn serialize_tuple(self, length: usize) -> Result<Compound<'p, 'o>, Stop> {
        self.compound(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Compound<'p, 'o>, Stop> {
        self.compound(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        length: usize,
    ) -> Result<Compound<'p, 'o>, Stop> {
        self.alternative(index)?.compound(Some(length))
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Entries<'p, 'o>, Stop> {
        match self.node() {
            Node::Map { entry, .. } => {
                let at = self.out.begin(length)?;
                Ok(Entries { plan: self.plan, entry: *entry, at, count: 0, out: self.out })
            }
            _ => Err(self.refuse("a map")),
        }
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Compound<'p, 'o>, Stop> {
        self.compound(Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        length: usize,
    ) -> Result<Compound<'p, 'o>, Stop> {
        self.alternative(index)?.compound(Some(length))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A composite of members or items.
pub(super) struct Compound<'p, 'o> {
    plan: &'p Plan,
    kind: Kind<'p>,
    out: &'o mut Output,
}

enum Kind<'p> {
    /// A list whose length is reserved at `at`.
    List {
        item: Id,
        at: usize,
        count: usize,
    },
    Array {
        item: Id,
        left: usize,
    },
    /// A struct that starts at `at`; its `scalars` are inserted there, and their values are collected from `values` on.
    Struct {
        left: std::slice::Iter<'p, Member>,
        scalars: &'p [Scalar],
        at: usize,
        values: usize,
    },
}

impl Compound<'_, '_> {
    fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        let Member { id, gap } = self.next()?;
        value.serialize(Encoder { plan: self.plan, id, out: self.out })?;
        self.out.zeros(gap);
        Ok(())
    }

    fn next(&mut self) -> Result<Member, Stop> {
        match &mut self.kind {
            Kind::List { item, count, .. } => {
                *count += 1;
                Ok(Member { id: *item, gap: 0 })
            }
            Kind::Array { item, left } => {
                *left = left.checked_sub(1).ok_or_else(|| Stop::value("an array has too many items"))?;
                Ok(Member { id: *item, gap: 0 })
            }
            Kind::Struct { left, .. } => {
                left.next().copied().ok_or_else(|| Stop::value("a struct has too many members"))
            }
        }
    }

    fn finish(self) -> Result<(), Stop> {
        match self.kind {
            Kind::List { at, count, .. } => self.out.end(at, count),
            Kind::Array { left: 0, .. } => Ok(()),
            Kind::Array { .. } => Err(Stop::value("an array has too few items")),
            Kind::Struct { left, .. } if left.len() > 0 => {
                Err(Stop::value("a struct has too few members: none may be left out"))
            }
            Kind::Struct { scalars: [], .. } => Ok(()),
            Kind::Struct { scalars, at, values, .. } => {
                let values: Vec<_> = self.out.fast.drain(values..).collect();
                self.out.bytes.splice(at..at, fast::write(scalars, &values));
                Ok(())
            }
        }
    }
}

macro_rules! sequences {
    ($($sequence:ident $put:ident,)*) => {
        $(impl $sequence for Compound<'_, '_> {
            type Ok = ();
            type Error = Stop;

            fn $put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
                self.put(value)
            }

            fn end(self) -> Result<(), Stop> {
                self.finish()
            }
        })*
    };
}

sequences! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

macro_rules! structs {
    ($($structure:ident)*) => {
        $(impl $structure for Compound<'_, '_> {
            type Ok = ();
            type Error = Stop;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), Stop> {
                self.put(value)
            }

            fn end(self) -> Result<(), Stop> {
                self.finish()
            }
        })*
    };
}

structs!(SerializeStruct SerializeStructVariant);

/// A map whose length is reserved at `at`.
pub(super) struct Entries<'p, 'o> {
    plan: &'p Plan,
    entry: [Member; 2],
    at: usize,
    count: usize,
    out: &'o mut Output,
}

impl Entries<'_, '_> {
    fn put<T: Serialize + ?Sized>(&mut self, Member { id, gap }: Member, value: &T) -> Result<(), Stop> {
        value.serialize(Encoder { plan: self.plan, id, out: self.out })?;
        self.out.zeros(gap);
        Ok(())
    }
}

impl SerializeMap for Entries<'_, '_> {
    type Ok = ();
    type Error = Stop;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Stop> {
        self.count += 1;
        let [member, _] = self.entry;
        self.put(member, key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        let [_, member] = self.entry;
        self.put(member, value)
    }

    fn end(self) -> Result<(), Stop> {
        self.out.end(self.at, self.count)
    }
}

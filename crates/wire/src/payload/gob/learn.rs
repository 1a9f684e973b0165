//! What a type is, learned from a value.
//!
//! Where a type cannot be read, nothing but the value shows what it is; and it does not show all: an empty list
//! does not say of what. Such a field is left out of what is told of the struct, which to Go is the same as a field
//! that is zero.

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant, Serializer,
};

use super::Error;
use super::describe::{Description, Field, Kind, Type, Variant};
use super::special::COMPLEX;
use super::time;

/// A description of the one value.
pub(super) fn learn<T: Serialize + ?Sized>(value: &T) -> Result<Description, Error> {
    let mut kinds = Vec::new();
    let seen = value.serialize(Look)?.ok_or_else(|| Error::new("cannot encode nil value"))?;
    let top = seen.settle(&mut kinds).unwrap_or(Type::Any);
    Ok(Description::learned(kinds, top))
}

/// What was seen of a type.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Basic(Type),
    Time,
    Unit,
    List(Option<Box<Self>>),
    /// A tuple or an array.
    Row(Vec<Option<Self>>),
    Map(Option<Box<(Self, Self)>>),
    Struct(&'static str, Vec<(&'static str, Option<Self>)>),
    /// What an enum holds, by the names of variants.
    Choice(Vec<(&'static str, Self)>),
}

impl Seen {
    /// What has been seen as both. What cannot be both is an interface.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::List(one), Self::List(other)) => Self::List(both(one, other)),
            (Self::Row(one), Self::Row(other)) if one.len() == other.len() => {
                Self::Row(one.into_iter().zip(other).map(|(one, other)| either(one, other)).collect())
            }
            (Self::Map(one), Self::Map(other)) => Self::Map(match (one, other) {
                (Some(one), Some(other)) => {
                    let ((key, elem), (other_key, other_elem)) = (*one, *other);
                    Some(Box::new((key.and(other_key), elem.and(other_elem))))
                }
                (one, other) => one.or(other),
            }),
            (Self::Struct(name, one), Self::Struct(other_name, other)) if name == other_name => {
                Self::Struct(name, merge(one, other, either))
            }
            (Self::Choice(one), Self::Choice(other)) => Self::Choice(merge(one, other, Self::and)),
            _ => Self::Basic(Type::Any),
        }
    }

    /// Adds it to the types of a description; `None` where too little was seen.
    fn settle(self, kinds: &mut Vec<Kind>) -> Option<Type> {
        let kind = match self {
            Self::Basic(Type::Byte) => return Some(Type::Uint),
            Self::Basic(of) => return Some(of),
            Self::Time => Kind::Time,
            Self::Unit => Kind::Struct { name: "", fields: Vec::new() },
            Self::List(elem) if elem.as_deref() == Some(&Self::Basic(Type::Byte)) => return Some(Type::Bytes),
            Self::List(elem) => Kind::Slice(elem?.settle(kinds)?),
            Self::Row(row) => {
                let types: Option<Vec<_>> = row.into_iter().map(|each| each?.settle(kinds)).collect();
                Kind::of_row(types?)?
            }
            Self::Map(pair) => {
                let (key, elem) = *pair?;
                Kind::Map(key.settle(kinds)?, elem.settle(kinds)?)
            }
            Self::Struct(name, seen) => {
                let fields = seen.into_iter().filter_map(|(name, seen)| {
                    Some(Field { name: name.into(), of: seen?.settle(kinds)? })
                });
                Kind::Struct { name, fields: fields.collect() }
            }
            Self::Choice(seen) => {
                let variants =
                    seen.into_iter().filter_map(|(name, seen)| Some(Variant { name, of: seen.settle(kinds)? }));
                Kind::Choice(variants.collect())
            }
        };
        let known = kinds.iter().position(|known| *known == kind);
        Some(Type::At(known.unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        }) as u32))
    }
}

fn both(one: Option<Box<Seen>>, other: Option<Box<Seen>>) -> Option<Box<Seen>> {
    either(one.map(|one| *one), other.map(|other| *other)).map(Box::new)
}

fn either(one: Option<Seen>, other: Option<Seen>) -> Option<Seen> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.and(other)),
        (one, other) => one.or(other),
    }
}

/// What either has, in the order of the first.
fn merge<T: Default>(
    mut one: Vec<(&'static str, T)>,
    other: Vec<(&'static str, T)>,
    and: impl Fn(T, T) -> T,
) -> Vec<(&'static str, T)> {
    let mut place = 0;
    for (name, seen) in other {
        match one.iter_mut().position(|(known, _)| *known == name) {
            Some(known) => {
                place = known + 1;
                if let Some((_, before)) = one.get_mut(known) {
                    *before = and(std::mem::take(before), seen);
                }
            }
            None => {
                one.insert(place, (name, seen));
                place += 1;
            }
        }
    }
    one
}

impl Default for Seen {
    fn default() -> Self {
        Self::Basic(Type::Any)
    }
}

/// Looks at a value. What it finds of nothing is `None`.
struct Look;

type Found = Result<Option<Seen>, Error>;

fn basic(of: Type) -> Found {
    Ok(Some(Seen::Basic(of)))
}

fn held(variant: &'static str, seen: Option<Seen>) -> Found {
    Ok(Some(Seen::Choice(vec![(variant, seen.unwrap_or(Seen::Unit))])))
}

macro_rules! basic {
    ($($method:ident $type:ty, $of:ident);+) => {$(
        fn $method(self, _: $type) -> Found {
            basic(Type::$of)
        }
    )+};
}

impl Serializer for Look {
    type Ok = Option<Seen>;
    type Error = Error;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Parts;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    basic! {
        serialize_bool bool, Bool;
        serialize_i8 i8, Int;
        serialize_i16 i16, Int;
        serialize_i32 i32, Int;
        serialize_i64 i64, Int;
        serialize_u8 u8, Byte;
        serialize_u16 u16, Uint;
        serialize_u32 u32, Uint;
        serialize_u64 u64, Uint;
        serialize_f32 f32, Float;
        serialize_f64 f64, Float;
        serialize_char char, Int;
        serialize_str &str, String;
        serialize_bytes &[u8], Bytes
    }

    fn serialize_none(self) -> Found {
        Ok(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Found {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Found {
        Ok(Some(Seen::Unit))
    }

    fn serialize_unit_struct(self, _: &'static str) -> Found {
        Ok(Some(Seen::Unit))
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Found {
        basic(Type::String)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Found {
        match name {
            COMPLEX => basic(Type::Complex),
            time::NAME => Ok(Some(Seen::Time)),
            _ => value.serialize(self),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Found {
        held(variant, value.serialize(self)?)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts, Error> {
        Ok(Parts::new(Seen::List(None)))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts, Error> {
        Ok(Parts::new(Seen::Row(Vec::new())))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts, Error> {
        Ok(Parts::new(Seen::Row(Vec::new())))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Error> {
        Ok(Parts { variant: Some(variant), ..Parts::new(Seen::Row(Vec::new())) })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts, Error> {
        Ok(Parts::new(Seen::Map(None)))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts, Error> {
        Ok(Parts::new(Seen::Struct(name, Vec::new())))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Error> {
        Ok(Parts { variant: Some(variant), ..Parts::new(Seen::Struct(variant, Vec::new())) })
    }
}

/// A value of parts, and what was seen of them so far.
struct Parts {
    seen: Seen,
    key: Option<Seen>,
    variant: Option<&'static str>,
}

impl Parts {
    fn new(seen: Seen) -> Self {
        Self { seen, key: None, variant: None }
    }

    fn part<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        let part = value.serialize(Look)?;
        match &mut self.seen {
            Seen::List(elem) => *elem = both(elem.take(), part.map(Box::new)),
            Seen::Row(row) => row.push(part),
            Seen::Struct(_, fields) => fields.push((name, part)),
            Seen::Map(pair) => {
                let new = self.key.take().zip(part).map(Box::new);
                let known = Seen::Map(pair.take());
                if let Seen::Map(all) = known.and(Seen::Map(new)) {
                    *pair = all;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn found(self) -> Found {
        match self.variant {
            Some(variant) => held(variant, Some(self.seen)),
            None => Ok(Some(self.seen)),
        }
    }
}

macro_rules! parts {
    ($($trait:ident $method:ident),+) => {$(
        impl $trait for Parts {
            type Ok = Option<Seen>;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.part("", value)
            }

            fn end(self) -> Found {
                self.found()
            }
        }
    )+};
}

parts! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
}

macro_rules! fields {
    ($($trait:ident),+) => {$(
        impl $trait for Parts {
            type Ok = Option<Seen>;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                self.part(name, value)
            }

            fn end(self) -> Found {
                self.found()
            }
        }
    )+};
}

fields! { SerializeStruct, SerializeStructVariant }

impl SerializeMap for Parts {
    type Ok = Option<Seen>;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = key.serialize(Look)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.part("", value)
    }

    fn end(self) -> Found {
        self.found()
    }
}

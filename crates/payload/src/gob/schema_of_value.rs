//! Inference of a type's structure from a value.
//!
//! If a type cannot be deserialized, only the value shows its structure, and not completely: an empty list does not
//! show its element type. Such a field is omitted from the struct's description, which Go treats like a field with the
//! zero value.

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::Error;
use super::complex::COMPLEX;
use super::type_description::{Description, Field, Kind, Type, Variant};
use super::types::Opaque;
use super::{self_encoding, time};

/// Returns a description of this one value.
pub(super) fn infer<T: Serialize + ?Sized>(value: &T) -> Result<Description, Error> {
    let mut kinds = Vec::new();
    let seen = value.serialize(ValueObserver)?.ok_or_else(|| Error::new("cannot encode nil value"))?;
    let top = seen.resolve(&mut kinds)?.unwrap_or(Type::Any);
    Ok(Description::new_inferred(kinds, top))
}

/// The type inferred so far from the parts of the value that were serialized.
#[derive(Clone, Debug, PartialEq)]
enum ObservedType {
    Basic(Type),
    Time,
    SelfEncoded(&'static str, Opaque),
    Unit,
    List(Option<Box<Self>>),
    /// A tuple or an array.
    Row(Vec<Self>),
    Map(Option<Box<(Self, Self)>>),
    Struct(&'static str, Vec<(&'static str, Option<Self>)>),
    /// Content of an enum, by the names of variants.
    Choice(Vec<(&'static str, Self)>),
}

impl ObservedType {
    /// Merges two observations. Incompatible ones become an interface.
    fn unify(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::List(one), Self::List(other)) => Self::List(unify_box(one, other)),
            (Self::Row(one), Self::Row(other)) if one.len() == other.len() => {
                Self::Row(one.into_iter().zip(other).map(|(one, other)| one.unify(other)).collect())
            }
            (Self::Map(one), Self::Map(other)) => Self::Map(match (one, other) {
                (Some(one), Some(other)) => {
                    let ((key, elem), (other_key, other_elem)) = (*one, *other);
                    Some(Box::new((key.unify(other_key), elem.unify(other_elem))))
                }
                (one, other) => one.or(other),
            }),
            (Self::Struct(name, one), Self::Struct(other_name, other)) if name == other_name => {
                Self::Struct(name, merge_by_name(one, other, unify_option))
            }
            (Self::Choice(one), Self::Choice(other)) => Self::Choice(merge_by_name(one, other, Self::unify)),
            _ => Self::Basic(Type::Any),
        }
    }

    /// Adds the type to those of a description. Returns `None` if too little of the value was seen to determine it.
    fn resolve(self, kinds: &mut Vec<Kind>) -> Result<Option<Type>, Error> {
        let kind = match self {
            Self::Basic(Type::Byte) => return Ok(Some(Type::Uint)),
            Self::Basic(of) => return Ok(Some(of)),
            Self::List(None) | Self::Map(None) => return Ok(None),
            Self::Time => Kind::Time,
            Self::SelfEncoded(name, how) => Kind::SelfEncoded(name, how),
            Self::Unit => Kind::Struct { name: "", fields: Vec::new() },
            Self::List(Some(elem)) if *elem == Self::Basic(Type::Byte) => return Ok(Some(Type::Bytes)),
            Self::List(Some(elem)) => Kind::Slice(elem.resolve_known(kinds)?),
            Self::Row(row) => {
                let types: Result<_, _> = row.into_iter().map(|each| each.resolve_known(kinds)).collect();
                Kind::for_tuple(types?).ok_or_else(|| Error::new("a tuple of too many"))?
            }
            Self::Map(Some(pair)) => Kind::Map(pair.0.resolve_known(kinds)?, pair.1.resolve_known(kinds)?),
            Self::Struct(name, seen) => {
                let mut fields = Vec::new();
                for (name, seen) in seen {
                    let of = seen.map(|seen| seen.resolve(kinds)).transpose()?.flatten();
                    fields.extend(of.map(|of| Field { name: name.into(), of }));
                }
                Kind::Struct { name, fields }
            }
            Self::Choice(seen) => {
                let variants =
                    seen.into_iter().map(|(name, seen)| Ok(Variant { name, of: seen.resolve_known(kinds)? }));
                Kind::Choice(variants.collect::<Result<_, Error>>()?)
            }
        };
        let known = kinds.iter().position(|known| *known == kind);
        Ok(Some(Type::At(known.unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        }) as u32)))
    }

    /// Like [`resolve`](Self::resolve), for a part that cannot be omitted.
    ///
    /// # Errors
    ///
    /// If too little of the value was seen to determine the type.
    fn resolve_known(self, kinds: &mut Vec<Kind>) -> Result<Type, Error> {
        self.resolve(kinds)?.ok_or_else(|| Error::new("the element type of an empty list is unknown"))
    }
}

fn unify_box(one: Option<Box<ObservedType>>, other: Option<Box<ObservedType>>) -> Option<Box<ObservedType>> {
    unify_option(one.map(|one| *one), other.map(|other| *other)).map(Box::new)
}

fn unify_option(one: Option<ObservedType>, other: Option<ObservedType>) -> Option<ObservedType> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.unify(other)),
        (one, other) => one.or(other),
    }
}

/// Returns the union of both, in the order of the first.
fn merge_by_name<T: Default>(
    mut one: Vec<(&'static str, T)>,
    other: Vec<(&'static str, T)>,
    unify: impl Fn(T, T) -> T,
) -> Vec<(&'static str, T)> {
    let mut index = 0;
    for (name, seen) in other {
        match one.iter_mut().position(|(known, _)| *known == name) {
            Some(known) => {
                index = known + 1;
                if let Some((_, before)) = one.get_mut(known) {
                    *before = unify(std::mem::take(before), seen);
                }
            }
            None => {
                one.insert(index, (name, seen));
                index += 1;
            }
        }
    }
    one
}

/// A value that is absent but cannot be omitted: a nil interface.
const NOTHING: ObservedType = ObservedType::Choice(Vec::new());

impl Default for ObservedType {
    fn default() -> Self {
        Self::Basic(Type::Any)
    }
}

/// Observes a value. The result for an empty one is `None`.
struct ValueObserver;

type Found = Result<Option<ObservedType>, Error>;

fn basic(of: Type) -> Found {
    Ok(Some(ObservedType::Basic(of)))
}

fn held(variant: &'static str, seen: Option<ObservedType>) -> Found {
    Ok(Some(ObservedType::Choice(vec![(variant, seen.unwrap_or(ObservedType::Unit))])))
}

macro_rules! basic {
    ($($method:ident $type:ty, $of:ident);+) => {$(
        fn $method(self, _: $type) -> Found {
            basic(Type::$of)
        }
    )+};
}

impl Serializer for ValueObserver {
    type Ok = Option<ObservedType>;
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
        Ok(Some(ObservedType::Unit))
    }

    fn serialize_unit_struct(self, _: &'static str) -> Found {
        Ok(Some(ObservedType::Unit))
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Found {
        basic(Type::String)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Found {
        match name {
            COMPLEX => basic(Type::Complex),
            time::NAME => Ok(Some(ObservedType::Time)),
            name => match self_encoding::parse_marker(name) {
                Some((name, how)) => Ok(Some(ObservedType::SelfEncoded(name, how))),
                None => value.serialize(self),
            },
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
        Ok(Parts::new(ObservedType::List(None)))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts, Error> {
        Ok(Parts::new(ObservedType::Row(Vec::new())))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts, Error> {
        Ok(Parts::new(ObservedType::Row(Vec::new())))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Error> {
        Ok(Parts { variant: Some(variant), ..Parts::new(ObservedType::Row(Vec::new())) })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts, Error> {
        Ok(Parts::new(ObservedType::Map(None)))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts, Error> {
        Ok(Parts::new(ObservedType::Struct(name, Vec::new())))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Error> {
        Ok(Parts { variant: Some(variant), ..Parts::new(ObservedType::Struct(variant, Vec::new())) })
    }
}

/// A composite value, and what was seen of its parts so far.
struct Parts {
    seen: ObservedType,
    key: Option<ObservedType>,
    variant: Option<&'static str>,
}

impl Parts {
    fn new(seen: ObservedType) -> Self {
        Self { seen, key: None, variant: None }
    }

    fn part<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        let part = value.serialize(ValueObserver)?;
        match &mut self.seen {
            ObservedType::List(elem) => {
                *elem = unify_box(elem.take(), Some(Box::new(part.unwrap_or(NOTHING))));
            }
            ObservedType::Row(row) => row.push(part.unwrap_or(NOTHING)),
            ObservedType::Struct(_, fields) => fields.push((name, part)),
            ObservedType::Map(pair) => {
                let new = self.key.take().map(|key| Box::new((key, part.unwrap_or(NOTHING))));
                let known = ObservedType::Map(pair.take());
                if let ObservedType::Map(all) = known.unify(ObservedType::Map(new)) {
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
            type Ok = Option<ObservedType>;
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
            type Ok = Option<ObservedType>;
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
    type Ok = Option<ObservedType>;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = key.serialize(ValueObserver)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.part("", value)
    }

    fn end(self) -> Found {
        self.found()
    }
}

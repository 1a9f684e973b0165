//! Inference of the type of a value that implements only `Serialize`.

use std::any::type_name;
use std::fmt;

use serde_core::ser::{
    self, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::schema_of_type::structure;
use super::types::{Character, Scalar, Type};
use super::{Error, MAX_TYPE_DEPTH, cpp};

impl Type {
    /// Returns the type of a value, if the value shows it. For a value that can also be deserialized, [`Type::for_type`]
    /// returns the type, whatever the value.
    ///
    /// # Errors
    ///
    /// [`Error::Type`] if an empty container hides the type of its items, or if an enum has alternatives with content:
    /// only one of them is visible.
    pub fn for_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        infer(value, 0).map_err(|NotInferable(error)| match error {
            Error::Type(text) => {
                Error::ty(format!("the type of this {} cannot be inferred: {text}", type_name::<T>()))
            }
            error => error,
        })
    }
}

fn infer<T: Serialize + ?Sized>(value: &T, depth: usize) -> Result<Type, NotInferable> {
    match depth {
        MAX_TYPE_DEPTH => Err(NotInferable(Error::TooDeep)),
        _ => value.serialize(Observer { depth: depth + 1, name: type_name::<T>() }),
    }
}

#[derive(Debug)]
struct NotInferable(Error);

impl NotInferable {
    fn new(text: &str) -> Self {
        Self(Error::ty(text))
    }
}

impl fmt::Display for NotInferable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotInferable {}

impl ser::Error for NotInferable {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(Error::value(text.to_string()))
    }
}

/// Observer of one value.
struct Observer {
    depth: usize,
    /// Its Rust type name, which distinguishes sets from lists and arrays from tuples.
    name: &'static str,
}

impl Observer {
    fn parts(self, kind: Kind) -> Parts {
        Parts { depth: self.depth, kind, types: Vec::new(), key: None, unknown: None }
    }

    fn is_set(&self) -> bool {
        self.name.split('<').next().is_some_and(|name| name.ends_with("Set"))
    }

    fn is_array(&self) -> bool {
        self.name.trim_start_matches('&').starts_with('[')
    }
}

macro_rules! scalars {
    ($($serialize:ident $value:ty: $ty:expr,)*) => {
        $(fn $serialize(self, _: $value) -> Result<Type, NotInferable> {
            Ok($ty)
        })*
    };
}

const OF_MANY: &str = "an enum has other alternatives than this";

impl Serializer for Observer {
    type Ok = Type;
    type Error = NotInferable;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Parts;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    scalars! {
        serialize_bool bool: Type::Scalar(Scalar::Bool),
        serialize_i8 i8: Type::Scalar(Scalar::I8),
        serialize_i16 i16: Type::Scalar(Scalar::I16),
        serialize_i32 i32: Type::Scalar(Scalar::I32),
        serialize_i64 i64: Type::Scalar(Scalar::I64),
        serialize_i128 i128: Type::Scalar(Scalar::I128),
        serialize_u8 u8: Type::Scalar(Scalar::U8),
        serialize_u16 u16: Type::Scalar(Scalar::U16),
        serialize_u32 u32: Type::Scalar(Scalar::U32),
        serialize_u64 u64: Type::Scalar(Scalar::U64),
        serialize_u128 u128: Type::Scalar(Scalar::U128),
        serialize_f32 f32: Type::Scalar(Scalar::F32),
        serialize_f64 f64: Type::Scalar(Scalar::F64),
        serialize_char char: Type::Scalar(Scalar::Char32),
        serialize_str &str: Type::String(Character::Char),
        serialize_bytes &[u8]: Type::String(Character::Char),
    }

    fn serialize_none(self) -> Result<Type, NotInferable> {
        Err(NotInferable::new("an optional value is not there"))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Type, NotInferable> {
        infer(value, self.depth).map(|ty| Type::Optional(ty.into()))
    }

    fn serialize_unit(self) -> Result<Type, NotInferable> {
        Ok(Type::Unit)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Type, NotInferable> {
        Ok(Type::Unit)
    }

    /// An enum with a unit variant is assumed to have only unit variants.
    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<Type, NotInferable> {
        Ok(Type::Scalar(Scalar::I32))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Type, NotInferable> {
        cpp::find_type(name).map_or_else(|| infer(value, self.depth), Ok)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Type, NotInferable> {
        Err(NotInferable::new(OF_MANY))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts, NotInferable> {
        let kind = if self.is_set() { Kind::Set } else { Kind::List };
        Ok(self.parts(kind))
    }

    fn serialize_tuple(self, length: usize) -> Result<Parts, NotInferable> {
        let kind = if self.is_array() { Kind::Array(length) } else { Kind::Tuple };
        Ok(self.parts(kind))
    }

    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Parts, NotInferable> {
        Ok(self.parts(Kind::Struct(name)))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Parts, NotInferable> {
        Err(NotInferable::new(OF_MANY))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts, NotInferable> {
        Ok(self.parts(Kind::Map))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts, NotInferable> {
        Ok(self.parts(Kind::Struct(name)))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Parts, NotInferable> {
        Err(NotInferable::new(OF_MANY))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Collects the types of parts.
struct Parts {
    depth: usize,
    kind: Kind,
    types: Vec<Type>,
    /// A key whose value was not seen yet.
    key: Option<Type>,
    /// Why the items seen so far do not show their type.
    unknown: Option<NotInferable>,
}

#[derive(Clone, Copy)]
enum Kind {
    List,
    Set,
    Array(usize),
    Tuple,
    Struct(&'static str),
    Map,
}

impl Parts {
    /// For items of the same type, the first that shows it is sufficient.
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Option<Type> {
        if !self.types.is_empty() {
            return None;
        }
        infer(value, self.depth).map_err(|refusal| self.unknown = Some(refusal)).ok()
    }

    fn part<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotInferable> {
        match self.kind {
            Kind::Tuple | Kind::Struct(_) => self.types.push(infer(value, self.depth)?),
            Kind::List | Kind::Set | Kind::Array(_) | Kind::Map => {
                let item = self.item(value);
                self.types.extend(item);
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Type, NotInferable> {
        Ok(match self.kind {
            Kind::List => Type::List(self.pop_type()?),
            Kind::Set => Type::Set(self.pop_type()?),
            Kind::Array(count) => Type::Array(self.pop_type()?, count),
            Kind::Map => {
                let value = self.pop_type()?;
                Type::Map(self.pop_type()?, value)
            }
            Kind::Tuple => Type::tuple(self.types),
            Kind::Struct(name) => structure(name, self.types),
        })
    }

    fn pop_type(&mut self) -> Result<Box<Type>, NotInferable> {
        let ty = self.types.pop().map(Box::new);
        ty.ok_or_else(|| self.unknown.take().unwrap_or_else(|| NotInferable::new("a collection is empty")))
    }
}

macro_rules! sequences {
    ($($sequence:ident $put:ident,)*) => {
        $(impl $sequence for Parts {
            type Ok = Type;
            type Error = NotInferable;

            fn $put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotInferable> {
                self.part(value)
            }

            fn end(self) -> Result<Type, NotInferable> {
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
        $(impl $structure for Parts {
            type Ok = Type;
            type Error = NotInferable;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                value: &T,
            ) -> Result<(), NotInferable> {
                self.part(value)
            }

            fn end(self) -> Result<Type, NotInferable> {
                self.finish()
            }
        })*
    };
}

structs!(SerializeStruct SerializeStructVariant);

impl SerializeMap for Parts {
    type Ok = Type;
    type Error = NotInferable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), NotInferable> {
        self.key = self.item(key);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotInferable> {
        if let Some(key) = self.key.take() {
            let value = self.item(value);
            self.types.extend(value.map(|value| [key, value]).into_iter().flatten());
        }
        Ok(())
    }

    fn end(self) -> Result<Type, NotInferable> {
        self.finish()
    }
}

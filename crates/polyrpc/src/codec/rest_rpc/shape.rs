//! Whether a value is a list of arguments: what only its `Serialize` knows.

use std::fmt;

use serde::ser::{Error, Impossible, Serialize, Serializer};

use super::super::byte_string::NOT_UTF8;

/// What a value is, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// The unit: no arguments, or no result.
    Nothing,
    /// A tuple: arguments in their order.
    List,
    /// A text that is not UTF-8, which serde has no word for.
    Text,
    /// Anything else: a single value.
    Sole,
}

impl Shape {
    /// The value is asked what it is, and stopped as soon as it has said so.
    pub(super) fn of(value: &(impl Serialize + ?Sized)) -> Self {
        let ask = |readable| value.serialize(Asked { readable }).unwrap_or_else(|said| said);
        match ask(true) {
            Said(Some(shape)) => shape,
            // What cannot be written for people may be a text all the same.
            Said(None) => ask(false).0.filter(|shape| *shape == Self::Text).unwrap_or(Self::Sole),
        }
    }
}

struct Asked {
    /// It is to say what it is among texts. An address, say, is one of these, and a list of bytes otherwise.
    readable: bool,
}

/// What a value said it is: an answer, but given as an error where a value would go on. `None` if it said nothing but an
/// error of its own.
#[derive(Debug)]
struct Said(Option<Shape>);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Said {}

impl Error for Said {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(None)
    }
}

const SOLE: Said = Said(Some(Shape::Sole));

macro_rules! sole {
    ($($method:ident($($value:ty),*);)*) => {
        $(fn $method(self, $(_: $value),*) -> Result<Said, Said> {
            Ok(SOLE)
        })*
    };
}

type Never = Impossible<Said, Said>;

impl Serializer for Asked {
    type Ok = Said;
    type Error = Said;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Never;
    type SerializeStructVariant = Never;

    sole! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn is_human_readable(&self) -> bool {
        self.readable
    }

    fn serialize_unit(self) -> Result<Said, Said> {
        Ok(Said(Some(Shape::Nothing)))
    }

    fn serialize_tuple(self, _: usize) -> Result<Never, Said> {
        Err(Said(Some(Shape::List)))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<Said, Said> {
        Ok(SOLE)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: &T,
    ) -> Result<Said, Said> {
        Ok(if name == NOT_UTF8 { Said(Some(Shape::Text)) } else { SOLE })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Said, Said> {
        Ok(SOLE)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Never, Said> {
        Err(SOLE)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Never, Said> {
        Err(SOLE)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Said> {
        Err(SOLE)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Never, Said> {
        Err(SOLE)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Never, Said> {
        Err(SOLE)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Said> {
        Err(SOLE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::ByteString;
    use super::*;

    #[test]
    fn a_text_that_is_not_utf8_says_so() {
        assert_eq!(Shape::of(&ByteString::from(b"\xff".to_vec())), Shape::Text);
        assert_eq!(Shape::of(&ByteString::from("text")), Shape::Sole);
    }

    #[test]
    fn only_a_tuple_is_a_list_of_arguments() {
        assert_eq!(Shape::of(&()), Shape::Nothing);
        assert_eq!(Shape::of(&(1, "a")), Shape::List);
        assert_eq!(Shape::of(&("a",)), Shape::List);
        assert_eq!(Shape::of("a"), Shape::Sole);
        assert_eq!(Shape::of(&std::net::Ipv4Addr::LOCALHOST), Shape::Sole);
        assert_eq!(Shape::of(&vec![1, 2]), Shape::Sole);
        assert_eq!(Shape::of(&Some(1)), Shape::Sole);
        assert_eq!(Shape::of(&std::collections::BTreeMap::from([(1, 2)])), Shape::Sole);
    }
}

//! Default of a missing value: zero or empty, as by C++'s value-initialisation.

use std::cell::Cell;

use ::serde::de::value::{Error, MapDeserializer};
use ::serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, SeqAccess, Visitor};
use ::serde::forward_to_deserialize_any;

/// Deserializer that produces the zero of any type.
pub(super) struct Zero<'z> {
    /// Number of zeros left.
    left: &'z Cell<usize>,
    /// Remaining nesting depth: a type may contain itself.
    depth: usize,
}

impl<'z> Zero<'z> {
    pub(super) fn new(left: &'z Cell<usize>, depth: usize) -> Result<Self, Error> {
        left.set(left.get().checked_sub(1).ok_or_else(|| Error::custom("too many elements are missing"))?);
        Ok(Self { left, depth })
    }

    fn members<'de, V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Zeros { count, within: self.descend()? })
    }

    fn descend(self) -> Result<Self, Error> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| Error::custom("too deep"))?;
        Ok(Self { depth, ..self })
    }
}

/// Implements each of these methods by one call of the visitor.
macro_rules! zeros {
    ($($method:ident => $visit:ident($($zero:expr)?);)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit($($zero)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Zero<'_> {
    type Error = Error;

    zeros! {
        deserialize_any => visit_unit();
        deserialize_bool => visit_bool(false);
        deserialize_i8 => visit_i8(0);
        deserialize_i16 => visit_i16(0);
        deserialize_i32 => visit_i32(0);
        deserialize_i64 => visit_i64(0);
        deserialize_i128 => visit_i128(0);
        deserialize_u8 => visit_u8(0);
        deserialize_u16 => visit_u16(0);
        deserialize_u32 => visit_u32(0);
        deserialize_u64 => visit_u64(0);
        deserialize_u128 => visit_u128(0);
        deserialize_f32 => visit_f32(0.0);
        deserialize_f64 => visit_f64(0.0);
        deserialize_char => visit_char('\0');
        deserialize_str => visit_borrowed_str("");
        deserialize_string => visit_borrowed_str("");
        deserialize_bytes => visit_borrowed_bytes(&[]);
        deserialize_byte_buf => visit_borrowed_bytes(&[]);
        deserialize_option => visit_none();
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self.descend()?)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.members(0, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(MapDeserializer::new(std::iter::empty::<((), ())>()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Error> {
        self.members(count, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.members(count, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.members(members.len(), visitor)
    }

    /// Produces the first variant, if it has no contents.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(0_u32))
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! { unit unit_struct identifier ignored_any }
}

struct Zeros<'z> {
    count: usize,
    within: Zero<'z>,
}

impl<'de> SeqAccess<'de> for Zeros<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(count) = self.count.checked_sub(1) else { return Ok(None) };
        self.count = count;
        seed.deserialize(Zero::new(self.within.left, self.within.depth)?).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ::serde::Deserialize;
    use ::serde::de::DeserializeOwned;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    enum Color {
        Red,
        #[allow(dead_code, reason = "it is not the first")]
        Green,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Metres(f64);

    #[derive(Debug, PartialEq, Deserialize)]
    struct Everything {
        truth: bool,
        numbers: (i8, u64, i128, f32),
        letter: char,
        text: String,
        maybe: Option<String>,
        list: Vec<i32>,
        map: BTreeMap<String, i32>,
        nothing: (),
        color: Color,
        metres: Metres,
        grid: [[u8; 2]; 2],
    }

    fn zero<T: DeserializeOwned>(depth: usize) -> Result<T, Error> {
        T::deserialize(Zero::new(&Cell::new(100), depth)?)
    }

    #[test]
    fn every_type_kind_has_a_zero_value() {
        let want = Everything {
            truth: false,
            numbers: (0, 0, 0, 0.0),
            letter: '\0',
            text: String::new(),
            maybe: None,
            list: vec![],
            map: BTreeMap::new(),
            nothing: (),
            color: Color::Red,
            metres: Metres(0.0),
            grid: [[0; 2]; 2],
        };
        assert_eq!(zero(3), Ok(want));
    }

    #[test]
    fn recursive_type_has_no_zero_value() {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "there is none")]
        struct Endless(Box<Self>, Box<Self>);

        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "there is none")]
        struct Wrapped(Box<Self>);

        zero::<Endless>(50).expect_err("it has no end");
        zero::<Wrapped>(50).expect_err("it has no end");
    }
}

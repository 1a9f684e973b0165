//! Lenient MessagePack decoder for older peers. A list of bytes may be encoded as a text, as in the old specification
//! without `bin` (go-msgpack v0.5.5, used by the rpcx of 2016). Where lists may have [`Any`](Lengths::Any) length, a
//! tuple or a struct accepts a list of any length (msgpack-c, used by rest_rpc).

mod zero;

use std::cell::Cell;

use ::serde::de::value::{Error, SeqDeserializer};
use ::serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use ::serde::forward_to_deserialize_any;
use polyrpc_payload::msgpack::{Reader, Token};

use super::message_pack::MAX_DEPTH;
use zero::Zero;

/// Decodes input that strict decoders reject. Those are tried first, since they are faster.
pub(super) fn from_slice<T: DeserializeOwned>(bytes: &[u8], lengths: Lengths) -> Result<T, Error> {
    let zeros = Cell::new(bytes.len() + SPARE_ZEROS);
    let zeros = (lengths == Lengths::Any).then_some(&zeros);
    T::deserialize(Value { reader: &mut Reader::new(bytes), zeros, depth: MAX_DEPTH })
}

/// Length of a list that represents a tuple or a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lengths {
    /// The exact length.
    Exact,
    /// Any length: surplus elements are skipped, and missing ones are zero or empty (msgpack-c
    /// `adaptor/cpp11/tuple.hpp`, `adaptor/detail/cpp11_define_array.hpp`).
    Any,
}

/// Number of zeros that may replace missing elements, in addition to one for each byte of input: the decoded message is
/// at most twice as large as one without missing elements.
const SPARE_ZEROS: usize = 4096;

struct Value<'r, 'de> {
    reader: &'r mut Reader<'de>,
    /// Number of zeros left, where lists may have any length.
    zeros: Option<&'r Cell<usize>>,
    depth: usize,
}

impl<'r, 'de> Value<'r, 'de> {
    fn token(&mut self) -> Result<Token<'de>, Error> {
        self.reader.next().map_err(Error::custom)
    }

    fn parts(self, left: u32) -> Result<Parts<'r, 'de>, Error> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| Error::custom("too deep"))?;
        Ok(Parts { reader: self.reader, left, zeros: self.zeros, depth })
    }

    /// Decodes a list that represents this number of values.
    fn list<V: Visitor<'de>>(mut self, wanted: usize, visitor: V) -> Result<V::Value, Error> {
        match (self.zeros, self.reader.clone().next()) {
            (Some(zeros), Ok(Token::Array(count))) => {
                self.token()?;
                let missing = wanted.saturating_sub(count as usize);
                let mut filled = FilledArray { parts: self.parts(count)?, missing, zeros };
                let value = visitor.visit_seq(&mut filled)?;
                filled.parts.skip()?;
                Ok(value)
            }
            _ => self.deserialize_any(visitor),
        }
    }
}

impl<'de> Deserializer<'de> for Value<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        match self.token()? {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Unsigned(value) => visitor.visit_u64(value),
            Token::Negative(value) => visitor.visit_i64(value),
            Token::F32(value) => visitor.visit_f32(value),
            Token::F64(value) => visitor.visit_f64(value),
            Token::Str(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => visitor.visit_borrowed_str(text),
                Err(_) => visitor.visit_borrowed_bytes(bytes),
            },
            Token::Bin(bytes) => visitor.visit_borrowed_bytes(bytes),
            Token::Array(count) => {
                let mut parts = self.parts(count)?;
                let value = visitor.visit_seq(&mut parts)?;
                parts.end(value)
            }
            Token::Map(count) => {
                let mut parts = self.parts(count)?;
                let value = visitor.visit_map(&mut parts)?;
                parts.end(value)
            }
            Token::Ext(..) => Err(Error::invalid_type(Unexpected::Other("extension"), &visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let mut ahead = self.reader.clone();
        let (Ok(Token::Str(bytes)) | Ok(Token::Bin(bytes))) = ahead.next() else {
            return self.deserialize_any(visitor);
        };
        self.token()?;
        visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied().map(Byte)))
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        match self.reader.clone().next() {
            Ok(Token::Nil) => {
                self.token()?;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, wanted: usize, visitor: V) -> Result<V::Value, Error> {
        self.list(wanted, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        wanted: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.list(wanted, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.list(members.len(), visitor)
    }

    /// Decodes a variant: its name, or its name and contents.
    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.token()? {
            Token::Map(1) => visitor.visit_enum(self.parts(1)?),
            Token::Str(name) => {
                let name = std::str::from_utf8(name).map_err(Error::custom)?;
                visitor.visit_enum(name.into_deserializer())
            }
            _ => Err(Error::custom("no variant")),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        map identifier ignored_any
    }
}

/// Byte of a text; it does not decode as any other number: a text is not a list of numbers.
struct Byte(u8);

impl<'de> Deserializer<'de> for Byte {
    type Error = Error;

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u8(self.0)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        Err(Error::invalid_type(Unexpected::Other("byte of a text"), &visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Byte {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Elements of an array, or pairs of a map.
struct Parts<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: u32,
    zeros: Option<&'r Cell<usize>>,
    depth: usize,
}

impl<'de> Parts<'_, 'de> {
    fn value(&mut self) -> Value<'_, 'de> {
        Value { reader: self.reader, zeros: self.zeros, depth: self.depth }
    }

    /// Skips the remaining values.
    fn skip(&mut self) -> Result<(), Error> {
        (0..self.left).try_for_each(|_| self.reader.skip()).map_err(Error::custom)
    }

    /// Fails if values remain: they would be read as the following ones.
    fn end<T>(&self, value: T) -> Result<T, Error> {
        if self.left == 0 { Ok(value) } else { Err(Error::custom(format!("{} too many", self.left))) }
    }
}

impl<'de> SeqAccess<'de> for &mut Parts<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(self.value()).map(Some)
    }
}

/// Elements of an array, filled up with zeros if it is too short.
struct FilledArray<'r, 'de> {
    parts: Parts<'r, 'de>,
    missing: usize,
    zeros: &'r Cell<usize>,
}

impl<'de> SeqAccess<'de> for &mut FilledArray<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if self.parts.left > 0 {
            return (&mut self.parts).next_element_seed(seed);
        }
        let Some(missing) = self.missing.checked_sub(1) else { return Ok(None) };
        self.missing = missing;
        seed.deserialize(Zero::new(self.zeros, self.parts.depth)?).map(Some)
    }
}

impl<'de> MapAccess<'de> for &mut Parts<'_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.value())
    }
}

impl<'de> EnumAccess<'de> for Parts<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<(S::Value, Self), Error> {
        Ok((seed.deserialize(self.value())?, self))
    }
}

impl<'de> VariantAccess<'de> for Parts<'_, 'de> {
    type Error = Error;

    fn unit_variant(mut self) -> Result<(), Error> {
        ::serde::Deserialize::deserialize(self.value())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.value())
    }

    fn tuple_variant<V: Visitor<'de>>(mut self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.value().deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        mut self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value().deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ::serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    enum Held {
        Nothing,
        Blob(Vec<u8>),
        Two(i64, Vec<u8>),
        Named { blob: Vec<u8> },
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct Everything {
        blob: Vec<u8>,
        text: String,
        maybe: Option<Vec<u8>>,
        none: Option<Vec<u8>>,
        blobs: Vec<Vec<u8>>,
        by_name: BTreeMap<String, Vec<u8>>,
        held: Vec<Held>,
        pair: (i8, f64),
        plain: Vec<u8>,
    }

    #[test]
    fn bytes_are_read_from_strings_at_any_depth() {
        let mut bytes = vec![0x89];
        for (name, value) in [
            ("blob", &b"\xa3\x01\x02\xff"[..]),
            ("text", b"\xa2hi"),
            ("maybe", b"\xa1x"),
            ("none", b"\xc0"),
            ("blobs", b"\x92\xa0\xa1\x80"),
            ("by_name", b"\x81\xa1k\xa1\xff"),
            ("held", b"\x94\xa7Nothing\x81\xa4Blob\xa1\xfe\x81\xa3Two\x92\xff\xa1\xfd\x81\xa5Named\x81\xa4blob\xa1\xfc"),
            ("pair", b"\x92\xff\xcb\x3f\xf8\0\0\0\0\0\0"),
            ("plain", b"\x92\x01\xcc\xff"),
        ] {
            bytes.push(0xa0 | name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(value);
        }
        let want = Everything {
            blob: vec![1, 2, 255],
            text: "hi".to_owned(),
            maybe: Some(vec![b'x']),
            none: None,
            blobs: vec![vec![], vec![0x80]],
            by_name: BTreeMap::from([("k".to_owned(), vec![255])]),
            held: vec![
                Held::Nothing,
                Held::Blob(vec![254]),
                Held::Two(-1, vec![253]),
                Held::Named { blob: vec![252] },
            ],
            pair: (-1, 1.5),
            plain: vec![1, 255],
        };
        for lengths in [Lengths::Exact, Lengths::Any] {
            assert_eq!(from_slice(&bytes, lengths).as_ref(), Ok(&want));
            for end in 0..bytes.len() {
                assert!(from_slice::<Everything>(&bytes[..end], lengths).is_err(), "cut at {end}");
            }
        }
    }

    #[test]
    fn string_is_not_a_list_of_other_numbers_or_a_tuple() {
        for lengths in [Lengths::Exact, Lengths::Any] {
            assert!(from_slice::<Vec<i32>>(b"\xa2ab", lengths).is_err());
            assert!(from_slice::<(u8, u8)>(b"\xa2ab", lengths).is_err());
            assert!(from_slice::<Vec<u8>>(b"\x91\xa1a", lengths).is_err());
        }
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct Person {
        id: i32,
        name: String,
        age: Option<i32>,
    }

    #[test]
    fn lists_of_any_length_fill_tuples_and_structs() {
        type People = (Person, Vec<Person>, (f64, Everything));

        let tom = || Person { id: 1, name: "tom".to_owned(), age: Some(20) };
        let empty = (0.0, Everything::default());
        for (bytes, want) in [
            (&b"\x90"[..], (Person::default(), vec![], empty)),
            (b"\x91\x94\x01\xa3tom\x14\x05", (tom(), vec![], (0.0, Everything::default()))),
            (
                b"\x92\x91\x07\x92\x90\x95\x01\xa3tom\x14\x05\x91\x81\x01\x02",
                (Person { id: 7, ..Person::default() }, vec![Person::default(), tom()], Default::default()),
            ),
            (
                b"\x94\x93\x01\xa3tom\x14\x90\x91\xcb\x3f\xf8\0\0\0\0\0\0\xa1x",
                (tom(), vec![], (1.5, Everything::default())),
            ),
        ] {
            assert_eq!(from_slice::<People>(bytes, Lengths::Any).as_ref(), Ok(&want));
            assert!(from_slice::<People>(bytes, Lengths::Exact).is_err());
            for end in 0..bytes.len() {
                assert!(from_slice::<People>(&bytes[..end], Lengths::Any).is_err(), "cut at {end}");
            }
        }
        assert!(from_slice::<(i32, i32)>(b"\x07", Lengths::Any).is_err(), "no list");
        assert!(from_slice::<(i32, i32)>(b"\x93\x01\x02\xa5a", Lengths::Any).is_err(), "the rest is broken");
        assert!(from_slice::<[(); 0]>(b"\x91\xc1", Lengths::Any).is_err(), "the rest is broken");
    }

    #[test]
    fn number_of_missing_elements_is_limited() {
        type Wide = [[u64; 32]; 32];

        let lists =
            |count: u16| [&[0x91, 0xdc][..], &count.to_be_bytes(), &vec![0x90; count.into()]].concat();
        let (few,): (Vec<Wide>,) = from_slice(&lists(3), Lengths::Any).expect("a few");
        assert_eq!(few, [[[0; 32]; 32]; 3]);
        let error = from_slice::<(Vec<Wide>,)>(&lists(1000), Lengths::Any).expect_err("a million");
        assert_eq!(error.to_string(), "too many elements are missing");
    }

    #[test]
    fn nesting_depth_is_limited() {
        #[derive(Debug, Deserialize)]
        struct Nest(#[allow(dead_code, reason = "only its depth matters")] Vec<Self>);

        let nested = |depth| [vec![0x91; depth], vec![0x90]].concat();
        for lengths in [Lengths::Exact, Lengths::Any] {
            assert!(from_slice::<Nest>(&nested(127), lengths).is_ok());
            assert!(from_slice::<Nest>(&nested(128), lengths).is_err());
        }
    }
}

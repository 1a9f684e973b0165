//! MessagePack from before it told bytes from texts: what a type wants as a list of bytes may be written as a text
//! (go-msgpack v0.5.5, which the rpcx of 2016 stands on).

use ::serde::de::value::{Error, SeqDeserializer};
use ::serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use ::serde::forward_to_deserialize_any;
use polyrpc_wire::payload::msgpack::{Reader, Token};

/// Reads what newer readers refuse. They are tried first: they are faster.
pub(super) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    T::deserialize(Value { reader: &mut Reader::new(bytes), depth: MOST_DEPTH })
}

/// How deep values may be in one another.
const MOST_DEPTH: usize = 128;

struct Value<'r, 'de> {
    reader: &'r mut Reader<'de>,
    depth: usize,
}

impl<'r, 'de> Value<'r, 'de> {
    fn token(&mut self) -> Result<Token<'de>, Error> {
        self.reader.next().map_err(Error::custom)
    }

    fn parts(self, left: u32) -> Result<Parts<'r, 'de>, Error> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| Error::custom("too deep"))?;
        Ok(Parts { reader: self.reader, left, depth })
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

    /// A variant's name, or its name and what it holds.
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
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// A byte of a text, which is no other number: a text is not a list of those.
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

/// The elements of an array, or the pairs of a map.
struct Parts<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: u32,
    depth: usize,
}

impl<'de> Parts<'_, 'de> {
    fn value(&mut self) -> Value<'_, 'de> {
        Value { reader: self.reader, depth: self.depth }
    }

    /// What nobody took would be taken for what follows.
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

    #[derive(Debug, PartialEq, Deserialize)]
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
    fn bytes_are_read_out_of_texts_wherever_they_are() {
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
        assert_eq!(from_slice(&bytes), Ok(want));
        for end in 0..bytes.len() {
            assert!(from_slice::<Everything>(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_text_is_no_list_of_other_numbers_and_no_tuple() {
        assert!(from_slice::<Vec<i32>>(b"\xa2ab").is_err());
        assert!(from_slice::<(u8, u8)>(b"\xa2ab").is_err());
        assert!(from_slice::<Vec<u8>>(b"\x91\xa1a").is_err());
    }

    #[test]
    fn values_that_go_on_and_on_end_somewhere() {
        #[derive(Debug, Deserialize)]
        struct Nest(#[allow(dead_code, reason = "only its depth matters")] Vec<Self>);

        assert!(from_slice::<Nest>(&[[0x91; 127].as_slice(), &[0x90]].concat()).is_ok());
        assert!(from_slice::<Nest>(&[[0x91; 128].as_slice(), &[0x90]].concat()).is_err());
    }
}

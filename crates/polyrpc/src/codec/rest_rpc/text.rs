//! Basic values as text, as encoded and decoded in C++: numbers by `std::to_string` and `std::from_chars`.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, SeqAccess, Visitor,
};
use serde::ser::{self, Impossible, Serialize, SerializeTuple, Serializer};

use super::super::buffer::Buffer;

/// Outcome of decoding a value.
pub(super) enum ReadOutcome<T> {
    Value(T),
    /// The type is not encoded as text.
    NotBasic,
    Wrong(String),
}

/// Decodes a value of a basic type; `listed`: as the only member of a tuple.
pub(super) fn read<T: DeserializeOwned>(text: &[u8], listed: bool) -> ReadOutcome<T> {
    ReadOutcome::from_result(T::deserialize(Text { text, listed, kinds: Kinds::All }))
}

/// Decodes a value of a text type.
pub(super) fn read_string<T: DeserializeOwned>(text: &[u8]) -> ReadOutcome<T> {
    ReadOutcome::from_result(T::deserialize(Text { text, listed: false, kinds: Kinds::Strings }))
}

impl<T> ReadOutcome<T> {
    fn from_result(result: Result<T, Error>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(Error::NotBasic) => Self::NotBasic,
            Err(Error::Wrong(error)) => Self::Wrong(error),
        }
    }
}

/// Outcome of encoding a value.
pub(super) enum WriteOutcome {
    Text(Bytes),
    /// The type of the value is not encoded as text.
    NotBasic,
    Wrong(String),
}

/// Encodes a value of a basic type; `listed`: as the only member of a tuple.
pub(super) fn write(value: &(impl Serialize + ?Sized), listed: bool) -> WriteOutcome {
    match value.serialize(Writer { listed }) {
        Ok(text) => WriteOutcome::Text(text),
        Err(Error::NotBasic) => WriteOutcome::NotBasic,
        Err(Error::Wrong(error)) => WriteOutcome::Wrong(error),
    }
}

/// Reason why a value is not decoded from or encoded as text.
#[derive(Debug)]
enum Error {
    NotBasic,
    Wrong(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBasic => f.write_str("it is not a basic value"),
            Self::Wrong(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(error: T) -> Self {
        Self::Wrong(error.to_string())
    }
}

impl ser::Error for Error {
    fn custom<T: fmt::Display>(error: T) -> Self {
        Self::Wrong(error.to_string())
    }
}

/// Deserializer of a text.
struct Text<'t> {
    text: &'t [u8],
    listed: bool,
    kinds: Kinds,
}

/// Types that are accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    All,
    Strings,
}

impl Text<'_> {
    /// Checks that a type other than a string may be decoded from it.
    fn expects_number(&self) -> Result<(), Error> {
        if self.listed || self.kinds == Kinds::Strings { Err(Error::NotBasic) } else { Ok(()) }
    }

    fn expects_string(&self) -> Result<(), Error> {
        if self.listed { Err(Error::NotBasic) } else { Ok(()) }
    }

    fn integer(&self, signed: bool) -> Result<i128, Error> {
        self.expects_number()?;
        integer(self.text, signed).ok_or_else(|| self.mismatch("an integer"))
    }

    fn float<F: FromStr + Into<f64> + Copy>(&self) -> Result<F, Error> {
        self.expects_number()?;
        float(self.text).ok_or_else(|| self.mismatch("a number"))
    }

    fn mismatch(&self, wanted: &str) -> Error {
        let start: String = String::from_utf8_lossy(self.text).chars().take(40).collect();
        Error::Wrong(format!("`{start}` is not {wanted}"))
    }
}

macro_rules! integers {
    ($($method:ident => $visit:ident $signed:literal $type:ty;)*) => {
        $(fn $method<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
            let value = <$type>::try_from(self.integer($signed)?);
            visitor.$visit(value.map_err(|_| self.mismatch(concat!("an integer that fits ", stringify!($type))))?)
        })*
    };
}

macro_rules! not_basic {
    ($($method:ident($($argument:ty),*);)*) => {
        $(fn $method<V: Visitor<'t>>(self, $(_: $argument,)* _: V) -> Result<V::Value, Error> {
            Err(Error::NotBasic)
        })*
    };
}

impl<'t> Deserializer<'t> for Text<'t> {
    type Error = Error;

    integers! {
        deserialize_i8 => visit_i8 true i8;
        deserialize_i16 => visit_i16 true i16;
        deserialize_i32 => visit_i32 true i32;
        deserialize_i64 => visit_i64 true i64;
        deserialize_i128 => visit_i128 true i128;
        deserialize_u8 => visit_u8 false u8;
        deserialize_u16 => visit_u16 false u16;
        deserialize_u32 => visit_u32 false u32;
        deserialize_u64 => visit_u64 false u64;
        deserialize_u128 => visit_u128 false u128;
    }

    not_basic! {
        deserialize_any();
        deserialize_option();
        deserialize_unit_struct(&'static str);
        deserialize_seq();
        deserialize_tuple_struct(&'static str, usize);
        deserialize_map();
        deserialize_struct(&'static str, &'static [&'static str]);
        deserialize_enum(&'static str, &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn deserialize_bool<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.integer(false)? != 0)
    }

    fn deserialize_f32<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f32(self.float()?)
    }

    fn deserialize_f64<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(self.float()?)
    }

    /// A character of C++ is a number.
    fn deserialize_char<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
        let code = u32::try_from(self.integer(false)?).ok().and_then(char::from_u32);
        visitor.visit_char(code.ok_or_else(|| self.mismatch("the number of a character"))?)
    }

    fn deserialize_str<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
        self.expects_string()?;
        match std::str::from_utf8(self.text) {
            Ok(text) => visitor.visit_borrowed_str(text),
            // Types that accept a text of any bytes get the bytes.
            Err(_) => visitor
                .visit_borrowed_bytes::<Error>(self.text)
                .map_err(|_| Error::Wrong("the text is not UTF-8".to_owned())),
        }
    }

    fn deserialize_string<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
        self.expects_string()?;
        visitor.visit_borrowed_bytes(self.text)
    }

    fn deserialize_byte_buf<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    /// The unit type: the input is ignored.
    fn deserialize_unit<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Error> {
        self.expects_number()?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'t>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.listed {
            return Err(Error::NotBasic);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'t>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        if !self.listed || length != 1 {
            return Err(Error::NotBasic);
        }
        visitor.visit_seq(SingleElement(Some(Text { listed: false, ..self })))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl<'t> IntoDeserializer<'t, Error> for Text<'t> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Only member of a tuple.
struct SingleElement<'t>(Option<Text<'t>>);

impl<'t> SeqAccess<'t> for SingleElement<'t> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'t>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.0.take().map(|text| seed.deserialize(text)).transpose()
    }
}

/// Parses an integer as `std::from_chars` does: no blank and no `+` before it, any characters after it.
fn integer(text: &[u8], signed: bool) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) if signed => (true, digits),
        Some(_) => return None,
        None => (false, text),
    };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let digits = std::str::from_utf8(digits.get(..end)?).ok()?;
    let value: i128 = digits.parse().ok()?;
    Some(if negative { -value } else { value })
}

/// Parses a number as `std::from_chars` does: a word or digits, any characters after it.
fn float<F: FromStr + Into<f64> + Copy>(text: &[u8]) -> Option<F> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let sign = text.len() - unsigned.len();
    let parse = |length: usize| std::str::from_utf8(text.get(..sign + length)?).ok()?.parse().ok();
    let begins =
        |word: &&&[u8]| unsigned.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if let Some(word) = WORDS.iter().find(begins) {
        return parse(word.len());
    }
    let length = decimal_len(unsigned);
    let value: F = parse(length)?;
    let mut mantissa = unsigned.iter().take(length).take_while(|byte| !matches!(byte, b'e' | b'E'));
    // Digits that are too large or too small for the type are out of range, not infinite or zero.
    let in_range = match value.into() {
        0.0 => mantissa.all(|byte| matches!(byte, b'0' | b'.')),
        value => value.is_finite(),
    };
    in_range.then_some(value)
}

/// Non-finite numbers; the longer word precedes its own prefix.
const WORDS: [&[u8]; 3] = [b"infinity", b"inf", b"nan"];

/// Returns the length of the decimal number at the start.
fn decimal_len(text: &[u8]) -> usize {
    let digits = |from: usize| {
        text.iter().skip(from).position(|byte| !byte.is_ascii_digit()).map_or(text.len(), |n| from + n)
    };
    let mut end = digits(0);
    if text.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let signed = matches!(text.get(end + 1), Some(b'+' | b'-'));
        let exponent = end + 1 + usize::from(signed);
        if text.get(exponent).is_some_and(u8::is_ascii_digit) {
            end = digits(exponent);
        }
    }
    end
}

/// Serializer of a basic value as text.
struct Writer {
    listed: bool,
}

impl Writer {
    fn text(&self, text: impl Into<Bytes>) -> Result<Bytes, Error> {
        if self.listed { Err(Error::NotBasic) } else { Ok(text.into()) }
    }
}

type Never = Impossible<Bytes, Error>;

macro_rules! write_shown {
    ($($method:ident($type:ty);)*) => {
        $(fn $method(self, value: $type) -> Result<Bytes, Error> {
            self.text(value.to_string())
        })*
    };
}

impl Serializer for Writer {
    type Ok = Bytes;
    type Error = Error;
    type SerializeSeq = Never;
    type SerializeTuple = Element;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Never;
    type SerializeStructVariant = Never;

    write_shown! {
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
    }

    fn serialize_bool(self, value: bool) -> Result<Bytes, Error> {
        self.serialize_u8(value.into())
    }

    fn serialize_f32(self, value: f32) -> Result<Bytes, Error> {
        self.serialize_f64(value.into())
    }

    /// `std::to_string` writes six decimals, and the words in lower case.
    fn serialize_f64(self, value: f64) -> Result<Bytes, Error> {
        self.text(if value.is_nan() { "nan".to_owned() } else { format!("{value:.6}") })
    }

    fn serialize_char(self, value: char) -> Result<Bytes, Error> {
        self.serialize_u32(value.into())
    }

    fn serialize_str(self, value: &str) -> Result<Bytes, Error> {
        self.serialize_bytes(value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Bytes, Error> {
        self.text(Buffer::copy(&[value]))
    }

    /// The unit is an empty text.
    fn serialize_unit(self) -> Result<Bytes, Error> {
        self.text(Bytes::new())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Bytes, Error> {
        value.serialize(self)
    }

    fn serialize_tuple(self, length: usize) -> Result<Element, Error> {
        if self.listed && length == 1 { Ok(Element(None)) } else { Err(Error::NotBasic) }
    }

    fn serialize_none(self) -> Result<Bytes, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<Bytes, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Bytes, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<Bytes, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Bytes, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Never, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Never, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Never, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Never, Error> {
        Err(Error::NotBasic)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Error> {
        Err(Error::NotBasic)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Only member of a tuple, once it is encoded.
struct Element(Option<Bytes>);

impl SerializeTuple for Element {
    type Ok = Bytes;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.0 = Some(value.serialize(Writer { listed: false })?);
        Ok(())
    }

    fn end(self) -> Result<Bytes, Error> {
        self.0.ok_or(Error::NotBasic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_value<T: DeserializeOwned>(text: &str) -> Option<T> {
        match read(text.as_bytes(), false) {
            ReadOutcome::Value(value) => Some(value),
            _ => None,
        }
    }

    fn write_value(value: &(impl Serialize + ?Sized)) -> Option<String> {
        match write(value, false) {
            WriteOutcome::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
            _ => None,
        }
    }

    #[test]
    fn numbers_are_written_as_in_cpp() {
        for (text, want) in [
            (write_value(&42_i32), "42"),
            (write_value(&-7_i64), "-7"),
            (write_value(&true), "1"),
            (write_value(&1.5_f64), "1.500000"),
            (write_value(&3_f32), "3.000000"),
            (write_value(&f64::NAN), "nan"),
            (write_value(&f64::NEG_INFINITY), "-inf"),
            (write_value(&'a'), "97"),
            (write_value("text"), "text"),
            (write_value(&()), ""),
        ] {
            assert_eq!(text.as_deref(), Some(want));
        }
    }

    #[test]
    fn numbers_are_read_as_in_cpp() {
        assert_eq!(read_value::<i32>("41"), Some(41));
        assert_eq!(read_value::<i32>("41 and more"), Some(41));
        assert_eq!(read_value::<i8>("-128"), Some(-128));
        assert_eq!(read_value::<u64>("18446744073709551615"), Some(u64::MAX));
        assert_eq!(read_value::<f64>("3.000000"), Some(3.0));
        assert_eq!(read_value::<f64>("-1.5e2x"), Some(-150.0));
        assert_eq!(read_value::<f64>("1e"), Some(1.0));
        assert_eq!(read_value::<f32>("1e-40"), Some(1e-40));
        for zero in ["0", "-0.0", "0e999", "0x10"] {
            assert_eq!(read_value::<f64>(zero), Some(0.0), "{zero}");
        }
        for infinite in ["inf", "INF", "infx", "infini", "Infinityx"] {
            assert_eq!(read_value::<f64>(infinite), Some(f64::INFINITY), "{infinite}");
        }
        assert_eq!(read_value::<f64>("-inf"), Some(f64::NEG_INFINITY));
        assert!(read_value::<f64>("nan1x").is_some_and(f64::is_nan));
        assert!(read_value::<f32>("-NaN").is_some_and(f32::is_nan));
        assert_eq!(read_value::<bool>("1"), Some(true));
        assert_eq!(read_value::<char>("97"), Some('a'));
        for wrong in ["", "+1", " 1", "x", "-", "300"] {
            assert_eq!(read_value::<u8>(wrong), None, "{wrong}");
        }
        for wrong in ["", "+1", ".", "-", "e5", "x1", "in", "1e400", "-1e400", "1e-400"] {
            assert_eq!(read_value::<f64>(wrong), None, "{wrong}");
        }
        for wrong in ["1e39", "1e-50"] {
            assert_eq!(read_value::<f32>(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn non_basic_values_are_left_to_struct_pack() {
        assert!(matches!(write(&(1, 2), true), WriteOutcome::NotBasic));
        assert!(matches!(write(&vec![1], false), WriteOutcome::NotBasic));
        assert!(matches!(write(&(vec![1],), true), WriteOutcome::NotBasic));
        assert!(matches!(write(&Some(1), false), WriteOutcome::NotBasic));
        assert!(matches!(read::<(i32, i32)>(b"1", true), ReadOutcome::NotBasic));
        assert!(matches!(read::<(Vec<i32>,)>(b"1", true), ReadOutcome::NotBasic));
        assert!(matches!(read::<(i32,)>(b"41", true), ReadOutcome::Value((41,))));
        assert!(matches!(write(&(41,), true), WriteOutcome::Text(text) if text == "41"));
    }
}

//! JSON of plain values, with a check for numbers that JSON cannot represent.
//!
//! serde_json encodes NaN and the infinities as `null`, which a peer reads as an absent value. A value whose output
//! contains a `null` is therefore scanned once more; any other is encoded as usual.

use std::fmt::Display;

use serde::Serialize;
use serde::ser::{
    self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::ser::Formatter;

use super::buffer::Buffer;

/// Encodes a value as JSON.
///
/// # Errors
///
/// If a number in it is not finite, with Go's message, or if it cannot be encoded.
pub(super) fn to_json(buffer: &mut Buffer, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
    let mut nulls = false;
    value.serialize(&mut serde_json::Serializer::with_formatter(buffer, NullDetector(&mut nulls)))?;
    if nulls { check_finite(value) } else { Ok(()) }
}

#[cold]
fn check_finite(value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
    value.serialize(Finite)
}

/// Formatter of compact JSON that records whether a `null` was written.
struct NullDetector<'a>(&'a mut bool);

impl Formatter for NullDetector<'_> {
    fn write_null<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        *self.0 = true;
        writer.write_all(b"null")
    }
}

type Result<T = (), E = serde_json::Error> = std::result::Result<T, E>;

/// Serializer that produces nothing, and fails at a number that is not finite.
#[derive(Clone, Copy)]
struct Finite;

/// Go's message in `encoding/json`.
#[cold]
fn unsupported(value: f64) -> serde_json::Error {
    let word = match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "+Inf",
        _ => "-Inf",
    };
    ser::Error::custom(format_args!("json: unsupported value: {word}"))
}

/// Methods of scalar values.
macro_rules! takes {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(fn $name(self, _: $type) -> Result {
            Ok(())
        })*
    };
}

impl Serializer for Finite {
    type Ok = ();
    type Error = serde_json::Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    takes! {
        serialize_bool: bool, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_unit_struct: &'static str,
    }

    fn serialize_f32(self, value: f32) -> Result {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result {
        if value.is_finite() { Ok(()) } else { Err(unsupported(value)) }
    }

    fn serialize_none(self) -> Result {
        Ok(())
    }

    fn serialize_unit(self) -> Result {
        Ok(())
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result {
        Ok(())
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _: &'static str, value: &T) -> Result {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self> {
        Ok(self)
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self> {
        Ok(self)
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self> {
        Ok(self)
    }

    fn collect_str<T: ?Sized + Display>(self, _: &T) -> Result {
        Ok(())
    }
}

/// Methods of compound values, by trait and function.
macro_rules! looks_into {
    ($($name:ident::$function:ident),* $(,)?) => {
        $(impl $name for Finite {
            type Ok = ();
            type Error = serde_json::Error;

            fn $function<T: ?Sized + Serialize>(&mut self, value: &T) -> Result {
                value.serialize(*self)
            }

            fn end(self) -> Result {
                Ok(())
            }
        })*
    };
}

looks_into! {
    SerializeSeq::serialize_element, SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field, SerializeTupleVariant::serialize_field,
}

/// The same for compounds with named fields.
macro_rules! looks_into_named {
    ($($name:ident),*) => {
        $(impl $name for Finite {
            type Ok = ();
            type Error = serde_json::Error;

            fn serialize_field<T: ?Sized + Serialize>(&mut self, _: &'static str, value: &T) -> Result {
                value.serialize(*self)
            }

            fn end(self) -> Result {
                Ok(())
            }
        })*
    };
}

looks_into_named!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Finite {
    type Ok = ();
    type Error = serde_json::Error;

    /// A key is a text in JSON; serde_json has rejected one that is not finite.
    fn serialize_key<T: ?Sized + Serialize>(&mut self, _: &T) -> Result {
        Ok(())
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result {
        value.serialize(*self)
    }

    fn end(self) -> Result {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use polyrpc_core::{Format, Json};

    use crate::codec::value::encode;

    #[derive(serde::Serialize)]
    struct Reading {
        at: Option<u32>,
        values: Vec<f64>,
        by_name: BTreeMap<&'static str, Shape>,
    }

    #[derive(serde::Serialize)]
    enum Shape {
        Point,
        Circle(f32),
        Box { width: f64 },
        Pair(f64, f64),
    }

    fn encode_json(value: &(impl serde::Serialize + ?Sized)) -> Result<String, String> {
        let bytes = encode(value, Format::Json(Json::Go)).map_err(|status| status.message().to_owned())?;
        Ok(String::from_utf8(bytes.to_vec()).expect("JSON is text"))
    }

    #[test]
    fn non_finite_number_is_rejected_at_any_depth() {
        for (value, word) in [(f64::NAN, "NaN"), (f64::INFINITY, "+Inf"), (f64::NEG_INFINITY, "-Inf")] {
            let refused = Err(format!("cannot write the value: json: unsupported value: {word}"));
            assert_eq!(encode_json(&value), refused);
            assert_eq!(encode_json(&(value as f32)), refused);
            assert_eq!(encode_json(&Some(value)), refused);
            assert_eq!(encode_json(&(1, [value])), refused);
            for shape in [Shape::Circle(value as f32), Shape::Box { width: value }, Shape::Pair(0.0, value)] {
                let reading = Reading { at: None, values: vec![], by_name: BTreeMap::from([("a", shape)]) };
                assert_eq!(encode_json(&reading), refused);
            }
            let reading = Reading { at: Some(1), values: vec![1.0, value], by_name: BTreeMap::new() };
            assert_eq!(encode_json(&reading), refused);
        }
    }

    #[test]
    fn absent_value_is_null() {
        let by_name = BTreeMap::from([("p", Shape::Point)]);
        let reading = Reading { at: None, values: vec![0.5, -0.0], by_name };
        let json = r#"{"at":null,"values":[0.5,-0.0],"by_name":{"p":"Point"}}"#;
        assert_eq!(encode_json(&reading).unwrap(), json);
        assert_eq!(encode_json(&()).unwrap(), "null");
    }
}

//! Kind of a value: whether it is a list of arguments, which only its `Serialize` reveals.

use std::fmt;

use polyrpc_payload::byte_string::NOT_UTF8;
use serde::ser::{Error, Impossible, Serialize, Serializer};

/// Kind of a value, as seen by a serializer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// Unit: no arguments, or no result.
    Nothing,
    /// Tuple: positional arguments.
    List,
    /// Text that is not UTF-8, which serde cannot represent.
    Text,
    /// Anything else: a single value.
    Single,
}

impl ValueKind {
    /// Serializes the value just far enough to determine its kind.
    pub(super) fn from_value(value: &(impl Serialize + ?Sized)) -> Self {
        let ask = |readable| value.serialize(KindProbe { readable }).unwrap_or_else(|kind| kind);
        match ask(true) {
            ProbedKind(Some(shape)) => shape,
            // A value that is not human-readable may be a text all the same.
            ProbedKind(None) => ask(false).0.filter(|shape| *shape == Self::Text).unwrap_or(Self::Single),
        }
    }
}

struct KindProbe {
    /// Whether to report a human-readable format. An address, for example, is a text in such formats, and a list of
    /// bytes otherwise.
    readable: bool,
}

/// Determined kind, returned as an error to stop the serialization. `None` if the value returned an error of its own.
#[derive(Debug)]
struct ProbedKind(Option<ValueKind>);

impl fmt::Display for ProbedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for ProbedKind {}

impl Error for ProbedKind {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(None)
    }
}

const SINGLE: ProbedKind = ProbedKind(Some(ValueKind::Single));

macro_rules! sole {
    ($($method:ident($($value:ty),*);)*) => {
        $(fn $method(self, $(_: $value),*) -> Result<ProbedKind, ProbedKind> {
            Ok(SINGLE)
        })*
    };
}

type Never = Impossible<ProbedKind, ProbedKind>;

impl Serializer for KindProbe {
    type Ok = ProbedKind;
    type Error = ProbedKind;
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

    fn serialize_unit(self) -> Result<ProbedKind, ProbedKind> {
        Ok(ProbedKind(Some(ValueKind::Nothing)))
    }

    fn serialize_tuple(self, _: usize) -> Result<Never, ProbedKind> {
        Err(ProbedKind(Some(ValueKind::List)))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<ProbedKind, ProbedKind> {
        Ok(SINGLE)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: &T,
    ) -> Result<ProbedKind, ProbedKind> {
        Ok(if name == NOT_UTF8 { ProbedKind(Some(ValueKind::Text)) } else { SINGLE })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<ProbedKind, ProbedKind> {
        Ok(SINGLE)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Never, ProbedKind> {
        Err(SINGLE)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Never, ProbedKind> {
        Err(SINGLE)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, ProbedKind> {
        Err(SINGLE)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Never, ProbedKind> {
        Err(SINGLE)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Never, ProbedKind> {
        Err(SINGLE)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, ProbedKind> {
        Err(SINGLE)
    }
}

#[cfg(test)]
mod tests {
    use polyrpc_payload::ByteString;

    use super::*;

    #[test]
    fn invalid_utf8_is_of_kind_text() {
        assert_eq!(ValueKind::from_value(&ByteString::from(b"\xff".to_vec())), ValueKind::Text);
        assert_eq!(ValueKind::from_value(&ByteString::from("text")), ValueKind::Single);
    }

    #[test]
    fn only_a_tuple_is_an_argument_list() {
        assert_eq!(ValueKind::from_value(&()), ValueKind::Nothing);
        assert_eq!(ValueKind::from_value(&(1, "a")), ValueKind::List);
        assert_eq!(ValueKind::from_value(&("a",)), ValueKind::List);
        assert_eq!(ValueKind::from_value("a"), ValueKind::Single);
        assert_eq!(ValueKind::from_value(&std::net::Ipv4Addr::LOCALHOST), ValueKind::Single);
        assert_eq!(ValueKind::from_value(&vec![1, 2]), ValueKind::Single);
        assert_eq!(ValueKind::from_value(&Some(1)), ValueKind::Single);
        assert_eq!(ValueKind::from_value(&std::collections::BTreeMap::from([(1, 2)])), ValueKind::Single);
    }
}

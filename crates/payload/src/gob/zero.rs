use std::iter;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::Error;
use super::types::Kind;

/// Zero value of a field that was not sent: false, 0, empty. Senders omit a struct field with this value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zero {
    /// Declared type of the field. A zero of another type is rejected like any other value.
    declared: Option<Kind>,
}

impl Zero {
    /// Returns the zero of a field that the sender does not know.
    pub(super) fn any() -> Self {
        Self { declared: None }
    }

    pub(super) fn new(declared: Kind) -> Self {
        // An interface may hold anything.
        Self { declared: Some(declared).filter(|&kind| kind != Kind::Interface) }
    }

    fn fits(self, wanted: &str, fits: impl FnOnce(Kind) -> bool) -> Result<(), Error> {
        if self.declared.is_none_or(fits) {
            Ok(())
        } else {
            Err(Error::new(format!("wrong type ({wanted})")))
        }
    }
}

macro_rules! scalar {
    ($($method:ident $visit:ident $kind:pat, $zero:expr);+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.fits(&stringify!($visit)[6..], |kind| matches!(kind, $kind))?;
            visitor.$visit($zero)
        }
    )+};
}

impl<'de> Deserializer<'de> for Zero {
    type Error = Error;

    scalar! {
        deserialize_bool visit_bool Kind::Bool, false;
        deserialize_i8 visit_i8 Kind::Int, 0;
        deserialize_i16 visit_i16 Kind::Int, 0;
        deserialize_i32 visit_i32 Kind::Int, 0;
        deserialize_i64 visit_i64 Kind::Int, 0;
        deserialize_u8 visit_u8 Kind::Uint, 0;
        deserialize_u16 visit_u16 Kind::Uint, 0;
        deserialize_u32 visit_u32 Kind::Uint, 0;
        deserialize_u64 visit_u64 Kind::Uint, 0;
        deserialize_f32 visit_f32 Kind::Float, 0.0;
        deserialize_f64 visit_f64 Kind::Float, 0.0;
        deserialize_char visit_char Kind::Int, '\0';
        deserialize_bytes visit_borrowed_bytes Kind::Bytes | Kind::Opaque(_), &[];
        deserialize_byte_buf visit_borrowed_bytes Kind::Bytes | Kind::Opaque(_), &[]
    }

    /// Go's zero time is not sent either.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.fits("string", |kind| matches!(kind, Kind::String | Kind::Opaque(_)))?;
        match self.declared {
            Some(Kind::Opaque(_)) => visitor.visit_borrowed_str(super::time::ZERO),
            _ => visitor.visit_borrowed_str(""),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_none()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // A time is a text here.
        let declared = if name == super::time::NAME {
            Some(Kind::Opaque(super::types::Opaque::Gob))
        } else {
            self.declared
        };
        visitor.visit_newtype_struct(Self { declared })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.fits("list", |kind| {
            matches!(kind, Kind::Slice { .. } | Kind::Array { .. } | Kind::Bytes | Kind::Opaque(_))
        })?;
        visitor.visit_seq(SeqDeserializer::<_, Error>::new(iter::empty::<Self>()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(iter::repeat_n(Self::any(), length)))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.fits("map", |kind| matches!(kind, Kind::Map { .. }))?;
        visitor.visit_map(MapDeserializer::<_, Error>::new(iter::empty::<(Self, Self)>()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.fits("struct", |kind| matches!(kind, Kind::Struct(_)))?;
        visitor.visit_map(MapDeserializer::new(fields.iter().map(|&name| (name, Self::any()))))
    }

    /// The first variant, since the first of Go's constants is usually 0.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let first = variants.first().ok_or_else(|| Error::new(format!("{name} has no variants")))?;
        visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(*first))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { identifier }
}

impl IntoDeserializer<'_, Error> for Zero {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

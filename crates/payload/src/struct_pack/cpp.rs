//! Newtypes for C++ types without a Rust equivalent. In other formats they are encoded as their content.

use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{Deserialize, Deserializer, Visitor};
use serde_core::ser::{Serialize, Serializer};

use super::types::{Character, Scalar, Type};

macro_rules! newtypes {
    ($($name:ident($inner:ty) = $serde:literal, $ty:expr, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
            pub struct $name(pub $inner);

            impl From<$inner> for $name {
                fn from(value: $inner) -> Self {
                    Self(value)
                }
            }

            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.serialize_newtype_struct($serde, &self.0)
                }
            }

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserializer.deserialize_newtype_struct($serde, Inner(PhantomData)).map(Self)
                }
            }
        )*

        /// Returns the type for a newtype's name.
        pub(super) fn find_type(name: &str) -> Option<Type> {
            match name {
                $($serde => Some($ty),)*
                _ => None,
            }
        }
    };
}

newtypes! {
    Char(u8) = "struct_pack::Char", Type::Scalar(Scalar::Char), "`char`, which in C++ is neither of the numbers of 8 bits.";
    Char16(u16) = "struct_pack::Char16", Type::Scalar(Scalar::Char16), "`char16_t`.";
    U16String(String) = "struct_pack::U16String", Type::String(Character::Char16), "`std::u16string`.";
    U32String(String) = "struct_pack::U32String", Type::String(Character::Char32), "`std::u32string`.";
    VarI32(i32) = "struct_pack::VarI32", Type::Scalar(Scalar::VarI32), "`struct_pack::var_int32_t`.";
    VarI64(i64) = "struct_pack::VarI64", Type::Scalar(Scalar::VarI64), "`struct_pack::var_int64_t`.";
    VarU32(u32) = "struct_pack::VarU32", Type::Scalar(Scalar::VarU32), "`struct_pack::var_uint32_t`.";
    VarU64(u64) = "struct_pack::VarU64", Type::Scalar(Scalar::VarU64), "`struct_pack::var_uint64_t`.";
}

struct Inner<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Inner<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a newtype")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A complex number, Go's `complex128`. In other formats it is a list of its two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex {
    /// The real part.
    pub re: f64,
    /// The imaginary part.
    pub im: f64,
}

/// Marker by which gob distinguishes it from other types; other formats ignore it.
pub(super) const COMPLEX: &str = "polyrpc gob complex";

impl Serialize for Complex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(COMPLEX, &(self.re, self.im))
    }
}

impl<'de> Deserialize<'de> for Complex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;

        impl<'de> serde::de::Visitor<'de> for Parts {
            type Value = Complex;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the two parts of a complex number")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Complex, D::Error> {
                <(f64, f64)>::deserialize(inner).map(|(re, im)| Complex { re, im })
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, parts: A) -> Result<Complex, A::Error> {
                let parts = serde::de::value::SeqAccessDeserializer::new(parts);
                <(f64, f64)>::deserialize(parts).map(|(re, im)| Complex { re, im })
            }
        }

        deserializer.deserialize_newtype_struct(COMPLEX, Parts)
    }
}

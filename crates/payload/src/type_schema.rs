//! Structure of values, for descriptions of methods whose messages no `.proto` declares.

/// Structure of a type's values, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TypeSchema {
    /// Unknown.
    #[default]
    Any,
    /// `true` or `false`.
    Bool,
    /// Signed integer of this number of bits.
    Int(u8),
    /// Unsigned integer of this number of bits.
    Uint(u8),
    /// Floating-point number of this number of bits.
    Float(u8),
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// Optional value.
    Optional(Box<Self>),
    /// List of values of one type.
    List(Box<Self>),
    /// List of values that may have different types, such as the arguments of a function.
    Tuple(Vec<Self>),
    /// Map from keys of one type to values of another.
    Map(Box<Self>, Box<Self>),
    /// Struct with named fields.
    Struct {
        /// Name of the type.
        name: String,
        /// Fields in order.
        fields: Vec<(String, Self)>,
    },
}

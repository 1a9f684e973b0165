use std::fmt;

use serde_core::{de, ser};

/// Why bytes cannot be decoded, or a value cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The bytes are truncated, or a length exceeds them.
    Truncated,
    /// The bytes contain a value of another type.
    Mismatch(Box<Mismatch>),
    /// The bytes are malformed.
    Invalid(&'static str),
    /// The value is nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH).
    TooDeep,
    /// A type cannot be represented in struct_pack.
    Type(Box<str>),
    /// A value does not have the type it should be encoded as, or the type itself rejects it.
    Value(Box<str>),
}

impl Error {
    pub(super) fn ty(text: impl Into<Box<str>>) -> Self {
        Self::Type(text.into())
    }

    pub(super) fn value(text: impl Into<Box<str>>) -> Self {
        Self::Value(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the bytes end within a value"),
            Self::Mismatch(mismatch) => mismatch.fmt(f),
            Self::Invalid(text) => f.write_str(text),
            Self::TooDeep => f.write_str("nested too deep"),
            Self::Type(text) | Self::Value(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::value(text.to_string())
    }
}

impl ser::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::value(text.to_string())
    }
}

/// Expected and received type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Literal of the expected type.
    pub wanted: Box<[u8]>,
    /// Code of the received type.
    pub code: u32,
    /// Literal of the received type, which only peers built without `NDEBUG` send.
    pub literal: Option<Box<[u8]>>,
}

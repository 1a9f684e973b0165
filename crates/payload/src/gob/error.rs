use std::borrow::Cow;
use std::fmt::{self, Display};

use polyrpc_core::Violation;

/// Why bytes are not valid gob, or a value cannot be encoded.
///
/// If Go's decoder rejects the same input, the text is Go's (`encoding/gob/decode.go`): it may be sent back to a peer
/// that knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    reason: Cow<'static, str>,
    /// The type has no equivalent in Go, whatever the value.
    of_type: bool,
    /// The number of arguments does not match the function.
    of_count: bool,
}

impl Error {
    #[cold]
    pub(super) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), of_type: false, of_count: false }
    }

    /// Creates the error of an argument list whose length does not match the function.
    #[cold]
    pub(super) fn wrong_count(expected: usize, found: usize) -> Self {
        let reason = format!("wrong number of arguments: expected {expected}, found {found}");
        Self { of_count: true, ..Self::new(reason) }
    }

    /// Creates the error of a type without an equivalent in Go.
    #[cold]
    pub(super) fn in_type(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { of_type: true, ..Self::new(reason) }
    }

    /// Adds the enclosing context to the error.
    #[cold]
    pub(super) fn within(self, what: &str) -> Self {
        Self { reason: format!("{what} {self}").into(), ..self }
    }

    /// Whether no value of the type can be encoded, rather than only this one, or whether the type cannot be
    /// determined.
    pub fn is_of_type(&self) -> bool {
        self.of_type
    }

    /// Whether the number of arguments does not match ([`arguments_from_slice`](super::arguments_from_slice)).
    pub fn is_of_count(&self) -> bool {
        self.of_count
    }

    #[cold]
    pub(super) fn truncated() -> Self {
        Self::new("unexpected EOF")
    }

    #[cold]
    pub(crate) fn unknown_type() -> Self {
        Self::new("unknown type id or corrupted data")
    }

    #[cold]
    pub(super) fn too_deep() -> Self {
        Self::new("invalid nesting depth")
    }

    #[cold]
    pub(crate) fn out_of_range(name: &str) -> Self {
        Self::new(format!("value for {name:?} out of range"))
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Error {}

impl serde::ser::Error for Error {
    fn custom<T: Display>(reason: T) -> Self {
        Self::new(reason.to_string())
    }
}

impl serde::de::Error for Error {
    fn custom<T: Display>(reason: T) -> Self {
        Self::new(reason.to_string())
    }
}

impl From<Error> for Violation {
    fn from(error: Error) -> Self {
        Self::new(format!("gob: {error}"))
    }
}

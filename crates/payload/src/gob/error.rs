use std::borrow::Cow;
use std::fmt::{self, Display};

use polyrpc_core::Violation;

/// Why bytes are no gob, or a value cannot be one.
///
/// Where Go's decoder refuses the same, the text says it in Go's words (`encoding/gob/decode.go`): it may travel
/// back to a peer that knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    reason: Cow<'static, str>,
    /// Whatever the value is, its type has nothing like it in Go.
    of_type: bool,
    /// There are more or fewer arguments than the function has.
    of_count: bool,
}

impl Error {
    #[cold]
    pub(super) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), of_type: false, of_count: false }
    }

    /// A list of arguments with more or fewer members than the function has.
    #[cold]
    pub(super) fn wrong_count(expected: usize, found: usize) -> Self {
        let reason = format!("wrong number of arguments: expected {expected}, found {found}");
        Self { of_count: true, ..Self::new(reason) }
    }

    /// A type that Go has nothing like.
    #[cold]
    pub(super) fn of_type(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { of_type: true, ..Self::new(reason) }
    }

    /// The same, of what it is within.
    #[cold]
    pub(super) fn within(self, what: &str) -> Self {
        Self { reason: format!("{what} {self}").into(), ..self }
    }

    /// Whether no value of the type can be carried, and not just this one, or whether the type does not say what it is.
    pub fn is_of_type(&self) -> bool {
        self.of_type
    }

    /// Whether there are more or fewer arguments than the function has ([`arguments_from_slice`](super::arguments_from_slice)).
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

use std::any::Any;
use std::fmt;

use polyrpc_wire::{Code, Status};

/// What a handler fails with, and what a caller gets.
///
/// One pointer wide. Every error type converts into it, so that `?` works in a handler: a [`Status`] keeps
/// its code, anything else becomes [`Code::Unknown`] with the error's text. For that it must not implement
/// [`std::error::Error`] itself; it converts into a boxed one, so that `?` works in a caller's `main` too.
///
/// ```
/// use polyrpc::{Code, Result, Status};
///
/// fn divide(a: i32, b: i32) -> Result<i32> {
///     a.checked_div(b).ok_or_else(|| Status::invalid_argument("division by zero").into())
/// }
///
/// fn parse(text: &str) -> Result<i32> {
///     Ok(text.parse::<i32>()?)
/// }
///
/// assert_eq!(divide(1, 0).unwrap_err().code(), Code::InvalidArgument);
/// assert_eq!(parse("x").unwrap_err().code(), Code::Unknown);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Status);

/// What a handler or a call returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a code and a text.
    pub fn new(code: Code, message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self(Status::new(code, message))
    }

    /// What went wrong.
    pub fn code(&self) -> Code {
        self.0.code()
    }

    /// What went wrong, in words; may be empty.
    pub fn message(&self) -> &str {
        self.0.message()
    }

    /// The failure in full: number, scope, fault, whether to retry.
    pub fn status(&self) -> &Status {
        &self.0
    }

    /// The failure in full.
    pub fn into_status(self) -> Status {
        self.0
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        let mut slot = Some(error);
        if let Some(status) = (&mut slot as &mut dyn Any).downcast_mut::<Option<Status>>() {
            return Self(status.take().expect("the slot was filled above"));
        }
        let error = slot.expect("only a status is taken out");
        Self(Status::unknown(with_sources(&error)))
    }
}

impl From<Error> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: Error) -> Self {
        Box::new(error.0)
    }
}

impl From<Error> for Box<dyn std::error::Error> {
    fn from(error: Error) -> Self {
        Box::new(error.0)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The text of an error and of what caused it: no caller sees the chain itself.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_wide() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn a_status_keeps_its_code_and_number_through_the_question_mark() {
        fn fails() -> Result<()> {
            Err(Status::not_found("no such user").with_number(54321))?;
            Ok(())
        }
        let error = fails().unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert_eq!(error.status().number(), Some(54321));
    }

    #[test]
    fn a_caller_may_use_the_question_mark_too() {
        fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
            Err(Error::new(Code::Internal, "boom"))?;
            Ok(())
        }
        assert_eq!(main().unwrap_err().to_string(), "internal: boom");
    }
}

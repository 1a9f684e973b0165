//! How calls fail, seen from both sides: a caller receives an [`Error`], a handler returns a [`Failure`].

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use polyrpc_core::status::texts;
use polyrpc_core::{Code, Metadata, Retry, Status};

/// An error of any type that may move between threads.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Error of a call, as its caller receives it.
///
/// One pointer wide. It is a [`std::error::Error`] whose [`source`](std::error::Error::source) is the cause on this
/// side, if there is one: for instance the `io::Error` of a refused connection. It contains the metadata that the peer
/// sent with its failure.
///
/// In a handler it converts into a [`Failure`] by `?`, as any error does.
///
/// ```
/// use std::error::Error as _;
/// use polyrpc::Client;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> polyrpc::Result<()> {
/// // No server listens there.
/// let error = Client::new("rpcx://127.0.0.1:1")?.call::<()>("ping", &()).await.unwrap_err();
/// let cause = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
/// assert_eq!(cause.unwrap().kind(), std::io::ErrorKind::ConnectionRefused);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Status);

/// Error of a handler.
///
/// One pointer wide. Every error converts into it by `?`; the caller's view depends on the type:
///
/// - a [`Status`], and an [`Error`] of a call that the handler made: that status, with its code and number;
/// - a `String` or a `&'static str`, which the author of the handler wrote for the caller: [`Code::Unknown`] with that
///   text;
/// - anything else, including `Box<dyn Error + Send + Sync>` and `anyhow::Error`: [`Code::Internal`] and the text
///   `internal error`. Such an error may contain hosts, paths and credentials; it stays in this process as the
///   [`source`](std::error::Error::source) of the status, and in an event of `tracing`. With feature `anyhow` a status
///   within an `anyhow::Error` is found.
///
/// [`Status::from_error`] sends such an error to the caller on purpose;
/// [`Server::expose_errors`](crate::Server::expose_errors) sends all of them, as Go servers do.
///
/// It must not implement [`std::error::Error`] itself, since every such type converts into it; its
/// [`status`](Self::status) does, and so does the [`Error`] into which it converts.
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
/// fn check(age: i32) -> Result<()> {
///     if age < 0 {
///         Err(format!("an age of {age} is invalid"))?;
///     }
///     Ok(())
/// }
///
/// assert_eq!(divide(1, 0).unwrap_err().code(), Code::InvalidArgument);
/// assert_eq!(parse("x").unwrap_err().message(), "internal error");
/// assert_eq!(check(-1).unwrap_err().message(), "an age of -1 is invalid");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Failure(Status);

/// Result of a handler, and of a program that fails with any error. A call returns a
/// [`client::Result`](crate::client::Result).
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Result of a call, and of any other operation of a client.
pub type ClientResult<T, E = Error> = std::result::Result<T, E>;

/// Methods that both have.
macro_rules! of_a_status {
    ($name:ident) => {
        impl $name {
            /// Creates an error with a code and a text.
            pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
                Self(Status::new(code, message))
            }

            /// Returns the code of the failure.
            pub fn code(&self) -> Code {
                self.0.code()
            }

            /// Returns the message of the failure; may be empty.
            pub fn message(&self) -> &str {
                self.0.message()
            }

            /// Returns the complete status: number, scope, fault, whether to retry, details.
            pub fn status(&self) -> &Status {
                &self.0
            }

            /// Converts into the complete status.
            pub fn into_status(self) -> Status {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

of_a_status!(Error);
of_a_status!(Failure);

impl Error {
    /// Returns the metadata that the peer sent before its failure: user fields, metadata, headers. Empty if it sent
    /// none, or did not answer.
    pub fn headers(&self) -> &Metadata {
        self.0.headers()
    }

    /// Returns the trailers that the peer sent after its failure (gRPC, gRPC-Web, Connect).
    pub fn trailers(&self) -> &Metadata {
        self.0.trailers()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self(status)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self(failure.0)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl<E: Into<BoxError> + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut slot = Some(error);
        let any: &mut dyn Any = &mut slot;
        let known =
            take(any).or_else(|| take(any).map(|error: Error| downstream_failure(error.into_status())));
        match (known.or_else(|| author_text(any)).or_else(|| within_anyhow(any)), slot) {
            (Some(status), _) => Self(status),
            (None, Some(error)) => Self(hide(error.into())),
            (None, None) => unreachable!("a taken error has a status"),
        }
    }
}

/// Takes the value out if it is a `T`.
fn take<T: 'static>(slot: &mut dyn Any) -> Option<T> {
    slot.downcast_mut::<Option<T>>().and_then(Option::take)
}

/// Returns the status of a handler whose own call has failed. Its server may not have been started, but this handler was: the
/// caller must not take the text for a rejection of its call.
#[cold]
fn downstream_failure(mut status: Status) -> Status {
    if texts::is_rejection(status.message()) {
        let text = format!("a call of the handler failed: {}", status.message());
        status = status.with_message(text);
    }
    if status.retry() == Retry::Elsewhere {
        status = status.with_retry(Retry::IfIdempotent);
    }
    status
}

/// Returns the status for a text that the author of the handler wrote for the caller.
#[cold]
fn author_text(slot: &mut dyn Any) -> Option<Status> {
    let author_text = take::<String>(slot).map(Cow::Owned);
    let author_text = author_text.or_else(|| take::<&'static str>(slot).map(Cow::Borrowed));
    author_text.or_else(|| take::<Cow<'static, str>>(slot)).map(Status::unknown)
}

#[cfg(feature = "anyhow")]
#[cold]
fn within_anyhow(slot: &mut dyn Any) -> Option<Status> {
    let held = slot.downcast_mut::<Option<anyhow::Error>>()?;
    let status = held.as_ref()?.downcast_ref::<Status>().cloned();
    status.or_else(|| {
        held.as_ref()?.downcast_ref::<Error>().map(|error| downstream_failure(error.status().clone()))
    })
}

#[cfg(not(feature = "anyhow"))]
fn within_anyhow(_: &mut dyn Any) -> Option<Status> {
    None
}

/// Returns the status for an error that is not meant for the caller, unless it is a status itself.
#[cold]
fn hide(error: BoxError) -> Status {
    match error.downcast::<Error>() {
        Ok(error) => downstream_failure(error.into_status()),
        Err(error) => Status::hiding(error),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn error_is_one_pointer_wide() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }

    #[test]
    fn status_keeps_code_and_number_through_the_question_mark() {
        fn fails() -> Result<()> {
            Err(Status::not_found("no such user").with_number(54321))?;
            Ok(())
        }
        fn called() -> Result<(), Error> {
            Ok(fails()?)
        }
        fn relays() -> Result<()> {
            Ok(called()?)
        }
        let failure = relays().unwrap_err();
        assert_eq!(failure.code(), Code::NotFound);
        assert_eq!(failure.status().number(), Some(54321));
    }

    #[test]
    fn error_converts_into_a_boxed_error() {
        fn main() -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
            Err(Error::new(Code::Internal, "boom"))?;
            Ok(())
        }
        assert_eq!(main().unwrap_err().to_string(), "internal: boom");
    }

    #[test]
    fn any_error_converts_and_only_strings_and_statuses_are_exposed() {
        fn code_and_text<E: Into<BoxError> + 'static>(error: E) -> (Code, String) {
            let failure = Failure::from(error);
            (failure.code(), failure.message().to_owned())
        }
        let exposed = |text: &str| (Code::Unknown, text.to_owned());
        let hidden = (Code::Internal, "internal error".to_owned());
        assert_eq!(code_and_text("words"), exposed("words"));
        assert_eq!(code_and_text(String::from("words")), exposed("words"));
        assert_eq!(code_and_text(Cow::Borrowed("words")), exposed("words"));
        assert_eq!(code_and_text(std::io::Error::other("hunter2")), hidden);
        assert_eq!(code_and_text(BoxError::from("hunter2")), hidden);
        assert_eq!(code_and_text(anyhow::anyhow!("hunter2")), hidden);
        let found = (Code::NotFound, "x".to_owned());
        assert_eq!(code_and_text(BoxError::from(Status::not_found("x"))), found);
        assert_eq!(code_and_text(BoxError::from(Error::new(Code::NotFound, "x"))), found);
        #[cfg(feature = "anyhow")]
        assert_eq!(
            code_and_text(anyhow::Error::from(Status::not_found("x")).context("while looking")),
            found
        );
    }

    #[test]
    fn failure_of_a_handlers_own_call_is_not_that_of_its_caller() {
        let error = || Error::new(Code::ResourceExhausted, "request reached rate limit");
        let boxed: BoxError = error().into();
        for failure in [Failure::from(error()), Failure::from(boxed)] {
            let status = Error::from(failure).into_status();
            assert_eq!(status.message(), "a call of the handler failed: request reached rate limit");
            assert_eq!((status.code(), status.retry()), (Code::ResourceExhausted, Retry::IfIdempotent));
        }
    }

    #[test]
    fn hidden_error_is_the_source() {
        let failure = Failure::from(std::io::Error::other("hunter2"));
        assert!(!format!("{failure}").contains("hunter2"));
        assert_eq!(Error::from(failure).source().unwrap().to_string(), "hunter2");
    }
}

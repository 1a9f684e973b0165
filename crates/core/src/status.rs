//! The one model of failure.

mod details;
pub mod texts;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::Metadata;

pub use self::details::Detail;

/// Why a call failed: the same for every protocol.
///
/// One pointer wide, so that `Result<T, Status>` stays small. It says what went wrong ([`Code`]), in words,
/// how far it reaches ([`Scope`]), whose fault it is ([`Fault`]) and whether the call may be tried again
/// ([`Retry`]).
///
/// As an [`Error`] it tells its cause by [`source`](Error::source): the `io::Error` of a connection that was refused, say.
/// The cause never travels. Neither the cause nor what the peer sent beside the failure counts when two are compared.
#[derive(Clone)]
pub struct Status(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    message: Cow<'static, str>,
    number: Option<i32>,
    details: Bytes,
    scope: Scope,
    fault: Fault,
    retry: Retry,
    /// What is known of the failure on this side only.
    local: Option<Box<LocalDetails>>,
}

/// What never travels with a failure.
#[derive(Clone, Default)]
struct LocalDetails {
    source: Option<Arc<dyn Error + Send + Sync>>,
    /// The code and the text say nothing of the source, since it may name what the peer must not know.
    hides: bool,
    headers: Metadata,
    trailers: Metadata,
}

impl Status {
    /// A failure with its reason. Scope, fault and retry follow from the code; change them where more is known.
    #[cold]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            number: None,
            details: Bytes::new(),
            scope: Scope::Call,
            fault: code.default_fault(),
            retry: code.default_retry(),
            local: None,
        }))
    }

    /// The failure of a part of this program whose text is not meant for the peer: [`Code::Internal`] with a text that
    /// says no more. The error itself is the [`source`](Error::source), which never travels.
    ///
    /// This is what `?` makes of an error in a handler. A status stays what it is.
    #[cold]
    pub fn hiding(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(status) => *status,
            Err(error) => {
                let mut status = Self::new(Code::Internal, HIDDEN).with_fault(Fault::Us).with_source(error);
                status.local().hides = true;
                status
            }
        }
    }

    /// The failure of a part of this program, told to the peer: [`Code::Unknown`] with the text of the error and of all
    /// that caused it, as a Go server tells it. A status stays what it is.
    ///
    /// Use it where such texts are meant for callers: they may name hosts, paths and credentials.
    ///
    /// ```
    /// use polyrpc_core::{Code, Status};
    ///
    /// let error = "x".parse::<i32>().unwrap_err();
    /// assert_eq!(Status::from_error(error.clone()).message(), "invalid digit found in string");
    /// assert_eq!(Status::hiding(error).message(), "internal error");
    /// ```
    #[cold]
    pub fn from_error(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::hiding(error).exposed()
    }

    /// The failure with the texts that it [hides](Self::hiding); as it is if it hides none.
    #[cold]
    #[must_use]
    pub fn exposed(mut self) -> Self {
        let Some(source) = self.source().filter(|_| self.hides_source()) else { return self };
        let text = with_sources(source);
        (self.0.code, self.0.message) = (Code::Unknown, text.into());
        (self.0.fault, self.0.retry) = (Code::Unknown.default_fault(), Code::Unknown.default_retry());
        self.local().hides = false;
        self
    }

    /// Whether the peer is told nothing of what [caused](Error::source) the failure.
    pub fn hides_source(&self) -> bool {
        self.0.local.as_ref().is_some_and(|local| local.hides)
    }

    /// What caused the failure, for this side only: it never travels.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.local().source = Some(Arc::from(source.into()));
        self
    }

    /// What the peer sent before and behind the failure. It does not travel on.
    #[must_use]
    pub fn received_with(mut self, headers: Metadata, trailers: Metadata) -> Self {
        if !headers.is_empty() || !trailers.is_empty() {
            let local = self.local();
            (local.headers, local.trailers) = (headers, trailers);
        }
        self
    }

    /// What the peer sent before its failure: user fields, metadata, headers. Empty where the failure is this side's.
    pub fn headers(&self) -> &Metadata {
        self.0.local.as_ref().map_or(&NOTHING, |local| &local.headers)
    }

    /// What the peer sent behind its failure (gRPC). Empty where the failure is this side's.
    pub fn trailers(&self) -> &Metadata {
        self.0.local.as_ref().map_or(&NOTHING, |local| &local.trailers)
    }

    fn local(&mut self) -> &mut LocalDetails {
        self.0.local.get_or_insert_default()
    }

    /// The protocol's or the application's own number for the failure: brpc's `54321`, say. It travels where
    /// a protocol has room for it, in place of the number its table has for the code.
    #[must_use]
    pub fn with_number(mut self, number: i32) -> Self {
        self.0.number = Some(number);
        self
    }

    /// More about the failure: a serialized `google.rpc.Status`. It travels where a protocol has room for it
    /// (gRPC's `grpc-status-details-bin`).
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Bytes>) -> Self {
        self.0.details = details.into();
        self
    }

    /// The failure reaches this far.
    #[must_use]
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.0.scope = scope;
        self
    }

    /// The failure is this side's fault.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.0.fault = fault;
        self
    }

    /// The call may be tried again under this condition.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// What went wrong.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What went wrong, in words; may be empty.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The words for a peer to which an empty text would be no failure: the code's name where there are none.
    pub fn message_or_code(&self) -> &str {
        match self.message() {
            "" => self.code().as_str(),
            message => message,
        }
    }

    /// The protocol's or the application's own number, if there is one.
    pub fn number(&self) -> Option<i32> {
        self.0.number
    }

    /// More about the failure, as a serialized `google.rpc.Status`; empty if there is none.
    pub fn details(&self) -> &Bytes {
        &self.0.details
    }

    /// How far the failure reaches.
    pub fn scope(&self) -> Scope {
        self.0.scope
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// Whether the call may be tried again.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }
}

/// One constructor a code, named like it.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident;)*) => {
        impl Status {
            $($(#[$doc])*
            pub fn $name(message: impl Into<Cow<'static, str>>) -> Self {
                Self::new(Code::$code, message)
            })*
        }
    };
}

constructors! {
    /// The caller went away.
    cancelled => Cancelled;
    /// A failure that says no more than its text.
    unknown => Unknown;
    /// The request cannot be what the method wants.
    invalid_argument => InvalidArgument;
    /// Time ran out.
    deadline_exceeded => DeadlineExceeded;
    /// What was asked for does not exist.
    not_found => NotFound;
    /// What was to be made exists already.
    already_exists => AlreadyExists;
    /// The caller may not do this.
    permission_denied => PermissionDenied;
    /// A limit was reached.
    resource_exhausted => ResourceExhausted;
    /// The system is not in the state the call needs.
    failed_precondition => FailedPrecondition;
    /// The call lost against another.
    aborted => Aborted;
    /// The request is past the valid range.
    out_of_range => OutOfRange;
    /// There is no such service, method or capability.
    unimplemented => Unimplemented;
    /// Something that must hold does not.
    internal => Internal;
    /// The peer cannot be reached or does not accept calls now.
    unavailable => Unavailable;
    /// Data is lost or broken for good.
    data_loss => DataLoss;
    /// The caller did not prove who he is.
    unauthenticated => Unauthenticated;
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Status");
        fields.field("code", &self.code()).field("message", &self.message());
        if let Some(number) = self.number() {
            fields.field("number", &number);
        }
        fields.field("scope", &self.scope()).field("fault", &self.fault()).field("retry", &self.retry());
        if let Some(source) = self.source() {
            fields.field("source", &source);
        }
        fields.finish()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code())?;
        if let Some(number) = self.number() {
            write!(f, " ({number})")?;
        }
        if !self.message().is_empty() {
            write!(f, ": {}", self.message())?;
        }
        Ok(())
    }
}

impl Error for Status {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.0.local.as_ref()?.source.as_deref()?;
        Some(source)
    }
}

impl PartialEq for Status {
    fn eq(&self, other: &Self) -> bool {
        let told =
            |status: &Self| (status.code(), status.number(), status.scope(), status.fault(), status.retry());
        told(self) == told(other) && self.message() == other.message() && self.details() == other.details()
    }
}

impl Eq for Status {}

/// What came with a failure that came with nothing.
static NOTHING: Metadata = Metadata::new();

/// What the peer learns of an error that is not meant for it.
const HIDDEN: &str = "internal error";

/// The text of an error and of what caused it.
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// What went wrong. The codes of gRPC, since every peer's own numbers can be mapped onto them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Code {
    /// The caller went away.
    Cancelled = 1,
    /// A failure that says no more than its text.
    Unknown = 2,
    /// The request cannot be what the method wants.
    InvalidArgument = 3,
    /// Time ran out.
    DeadlineExceeded = 4,
    /// What was asked for does not exist.
    NotFound = 5,
    /// What was to be made exists already.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// A limit was reached.
    ResourceExhausted = 8,
    /// The system is not in the state the call needs.
    FailedPrecondition = 9,
    /// The call lost against another.
    Aborted = 10,
    /// The request is past the valid range.
    OutOfRange = 11,
    /// There is no such service, method or capability.
    Unimplemented = 12,
    /// Something that must hold does not.
    Internal = 13,
    /// The peer cannot be reached or does not accept calls now.
    Unavailable = 14,
    /// Data is lost or broken for good.
    DataLoss = 15,
    /// The caller did not prove who he is.
    Unauthenticated = 16,
}

impl Code {
    /// Every code, in the order of its number.
    pub const ALL: [Self; 16] = [
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The name in words, as it is shown: `deadline exceeded`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
            Self::InvalidArgument => "invalid argument",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::PermissionDenied => "permission denied",
            Self::ResourceExhausted => "resource exhausted",
            Self::FailedPrecondition => "failed precondition",
            Self::Aborted => "aborted",
            Self::OutOfRange => "out of range",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::DataLoss => "data loss",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    fn default_fault(self) -> Fault {
        match self {
            Self::Cancelled
            | Self::InvalidArgument
            | Self::NotFound
            | Self::AlreadyExists
            | Self::PermissionDenied
            | Self::FailedPrecondition
            | Self::OutOfRange
            | Self::Unimplemented
            | Self::Unauthenticated => Fault::Caller,
            _ => Fault::Peer,
        }
    }

    fn default_retry(self) -> Retry {
        match self {
            Self::Unavailable | Self::ResourceExhausted => Retry::Elsewhere,
            Self::Aborted => Retry::IfIdempotent,
            _ => Retry::Never,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far a failure reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This call; others on the connection go on.
    Call,
    /// The connection and every call on it.
    Connection,
}

/// Whose fault a failure is, seen from where it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The one who calls: the same call will fail again.
    Caller,
    /// The one who was called, or the way to it.
    Peer,
    /// This program.
    Us,
}

/// Whether a failed call may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It would fail again, or must not be repeated.
    Never,
    /// The peer may have begun it: only a call without side effects.
    IfIdempotent,
    /// The peer did not begin it: any call, better at another endpoint.
    Elsewhere,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_pointer_wide() {
        assert_eq!(size_of::<Result<(), Status>>(), size_of::<usize>());
    }

    #[test]
    fn what_it_hides_is_its_source_and_not_in_its_text() {
        let inner = std::io::Error::other("postgres://admin:hunter2@db");
        let status = Status::hiding(inner);
        assert_eq!(
            (status.code(), status.message(), status.hides_source()),
            (Code::Internal, "internal error", true)
        );
        assert_eq!(status.source().unwrap().to_string(), "postgres://admin:hunter2@db");
        let exposed = status.exposed();
        assert_eq!((exposed.code(), exposed.message()), (Code::Unknown, "postgres://admin:hunter2@db"));
        assert!(!exposed.hides_source() && exposed.source().is_some());
        assert_eq!(Status::hiding(Status::not_found("x")), Status::not_found("x"));
        assert_eq!(Status::from_error(Status::not_found("x")), Status::not_found("x"));
        assert_eq!(Status::not_found("x").exposed(), Status::not_found("x"));
    }

    #[test]
    fn it_shows_code_number_and_text() {
        let status = Status::internal("custom error").with_number(54321);
        assert_eq!(status.to_string(), "internal (54321): custom error");
        assert_eq!(Status::cancelled("").to_string(), "cancelled");
    }
}

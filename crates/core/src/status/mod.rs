//! The error model of all protocols.

mod details;
pub mod texts;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::Metadata;

pub use self::details::Detail;

/// Failure of a call, independent of the protocol.
///
/// One pointer wide, so that `Result<T, Status>` stays small. It holds a code ([`Code`]), a text, how far the failure
/// reaches ([`Scope`]), the party at fault ([`Fault`]) and whether the call may be retried ([`Retry`]).
///
/// As an [`Error`] it returns its cause from [`source`](Error::source), such as the `io::Error` of a refused
/// connection. The cause is never sent to a peer. Comparison ignores the cause, where the failure was created, and
/// the metadata received with the failure.
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
    remote: bool,
    /// Local details of the failure.
    local: Option<Box<LocalDetails>>,
}

/// Details of a failure that are never sent to a peer.
#[derive(Clone, Default)]
struct LocalDetails {
    source: Option<Arc<dyn Error + Send + Sync>>,
    /// Code and text do not reveal the source, since it may contain confidential information.
    hides: bool,
    headers: Metadata,
    trailers: Metadata,
}

impl Status {
    /// Creates a failure. Scope, fault and retry follow from the code; change them if more is known.
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
            remote: false,
            local: None,
        }))
    }

    /// Creates a failure whose cause is not disclosed to the peer: [`Code::Internal`] with a generic text. The error
    /// itself is the [`source`](Error::source), which is never sent.
    ///
    /// `?` converts an error in a handler like this. A `Status` is returned unchanged.
    #[cold]
    pub fn hiding(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(status) => *status,
            Err(error) => {
                let mut status =
                    Self::new(Code::Internal, HIDDEN_MESSAGE).with_fault(Fault::Us).with_source(error);
                status.local().hides = true;
                status
            }
        }
    }

    /// Creates a failure whose cause is disclosed to the peer: [`Code::Unknown`] with the text of the error and of its
    /// whole chain of sources, like a Go server. A `Status` is returned unchanged.
    ///
    /// Use it if such texts are meant for callers: they may contain hosts, paths and credentials.
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

    /// Returns the failure with the texts that it [hides](Self::hiding); unchanged if it hides none.
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

    /// Whether the [source](Error::source) of the failure is hidden from the peer.
    pub fn hides_source(&self) -> bool {
        self.0.local.as_ref().is_some_and(|local| local.hides)
    }

    /// Sets the cause of the failure, for local use only: it is never sent.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.local().source = Some(Arc::from(source.into()));
        self
    }

    /// Sets the metadata that the peer sent before and after the failure. A server sends them to its caller
    /// only if a fallback (`Server::fallback` in `polyrpc`) returns the failure.
    #[must_use]
    pub fn received_with(mut self, headers: Metadata, trailers: Metadata) -> Self {
        if !headers.is_empty() || !trailers.is_empty() {
            let local = self.local();
            (local.headers, local.trailers) = (headers, trailers);
        }
        self
    }

    /// Returns the metadata that the peer sent before its failure: user fields, metadata, headers. Empty for a local
    /// failure.
    pub fn headers(&self) -> &Metadata {
        self.0.local.as_ref().map_or(&EMPTY_METADATA, |local| &local.headers)
    }

    /// Returns the trailers that the peer sent after its failure (gRPC, gRPC-Web, Connect). Empty for a local
    /// failure.
    pub fn trailers(&self) -> &Metadata {
        self.0.local.as_ref().map_or(&EMPTY_METADATA, |local| &local.trailers)
    }

    fn local(&mut self) -> &mut LocalDetails {
        self.0.local.get_or_insert_default()
    }

    /// Sets a protocol-specific or application-specific number, such as brpc's `54321`. It is sent if the protocol has
    /// a field for it, in place of the number that the protocol's table has for the code.
    #[must_use]
    pub fn with_number(mut self, number: i32) -> Self {
        self.0.number = Some(number);
        self
    }

    /// Sets the details: a serialized `google.rpc.Status`. They are sent if the protocol has a field for them (gRPC's
    /// `grpc-status-details-bin`).
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Bytes>) -> Self {
        self.0.details = details.into();
        self
    }

    /// Sets how far the failure reaches.
    #[must_use]
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.0.scope = scope;
        self
    }

    /// Sets the party at fault.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.0.fault = fault;
        self
    }

    /// Sets whether the call may be retried.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// Replaces the text.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Marks the failure as received: sessions of clients do so with what they decode from the peer.
    #[must_use]
    pub fn into_remote(mut self) -> Self {
        self.0.remote = true;
        self
    }

    /// Returns the status code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the text of the failure; may be empty.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the text, or the code's name if it is empty: for protocols where an empty text would not be a failure.
    pub fn message_or_code(&self) -> &str {
        match self.message() {
            "" => self.code().as_str(),
            message => message,
        }
    }

    /// Returns the protocol-specific or application-specific number, if there is one.
    pub fn number(&self) -> Option<i32> {
        self.0.number
    }

    /// Returns the details as a serialized `google.rpc.Status`; empty if there are none.
    pub fn details(&self) -> &Bytes {
        &self.0.details
    }

    /// Returns how far the failure reaches.
    pub fn scope(&self) -> Scope {
        self.0.scope
    }

    /// Returns the party at fault.
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// Returns whether the call may be retried.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// Returns whether the peer sent the failure, or a proxy on the way. Otherwise this side created it: for example if
    /// no connection could be opened, or the deadline expired.
    pub fn is_remote(&self) -> bool {
        self.0.remote
    }
}

/// One constructor per code, with the same name.
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
    /// The caller cancelled the call.
    cancelled => Cancelled;
    /// An unspecified failure.
    unknown => Unknown;
    /// The request is invalid for the method.
    invalid_argument => InvalidArgument;
    /// The deadline passed.
    deadline_exceeded => DeadlineExceeded;
    /// The requested entity does not exist.
    not_found => NotFound;
    /// The entity to be created exists already.
    already_exists => AlreadyExists;
    /// The caller lacks the permission.
    permission_denied => PermissionDenied;
    /// A limit was reached.
    resource_exhausted => ResourceExhausted;
    /// The system is not in the state required by the call.
    failed_precondition => FailedPrecondition;
    /// The call was aborted by a conflict with another.
    aborted => Aborted;
    /// The request is past the valid range.
    out_of_range => OutOfRange;
    /// The service, method or capability does not exist.
    unimplemented => Unimplemented;
    /// An invariant is violated.
    internal => Internal;
    /// The peer cannot be reached or does not accept calls now.
    unavailable => Unavailable;
    /// Data is lost or corrupted permanently.
    data_loss => DataLoss;
    /// The caller has no valid credential.
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
        let classification =
            |status: &Self| (status.code(), status.number(), status.scope(), status.fault(), status.retry());
        classification(self) == classification(other)
            && self.message() == other.message()
            && self.details() == other.details()
    }
}

impl Eq for Status {}

/// Metadata of a failure that was received without any.
static EMPTY_METADATA: Metadata = Metadata::new();

/// Text sent to the peer for an error that is hidden from it.
const HIDDEN_MESSAGE: &str = "internal error";

/// Returns the text of an error and of its chain of sources.
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

/// Status code: gRPC's codes, since every peer's own numbers can be mapped to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Code {
    /// The caller cancelled the call.
    Cancelled = 1,
    /// An unspecified failure.
    Unknown = 2,
    /// The request is invalid for the method.
    InvalidArgument = 3,
    /// The deadline passed.
    DeadlineExceeded = 4,
    /// The requested entity does not exist.
    NotFound = 5,
    /// The entity to be created exists already.
    AlreadyExists = 6,
    /// The caller lacks the permission.
    PermissionDenied = 7,
    /// A limit was reached.
    ResourceExhausted = 8,
    /// The system is not in the state required by the call.
    FailedPrecondition = 9,
    /// The call was aborted by a conflict with another.
    Aborted = 10,
    /// The request is past the valid range.
    OutOfRange = 11,
    /// The service, method or capability does not exist.
    Unimplemented = 12,
    /// An invariant is violated.
    Internal = 13,
    /// The peer cannot be reached or does not accept calls now.
    Unavailable = 14,
    /// Data is lost or corrupted permanently.
    DataLoss = 15,
    /// The caller has no valid credential.
    Unauthenticated = 16,
}

impl Code {
    /// All codes, in the order of their numbers.
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

    /// Returns the name as words: `deadline exceeded`.
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
    /// This call only; other calls on the connection are unaffected.
    Call,
    /// The connection and every call on it.
    Connection,
}

/// The party at fault, from the point of view of the reporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller: the same call will fail again.
    Caller,
    /// The callee, or the network path to it.
    Peer,
    /// This program.
    Us,
}

/// Whether a failed call may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It would fail again, or must not be repeated.
    Never,
    /// The peer may have started it: retry only an idempotent call.
    IfIdempotent,
    /// The peer did not start it: retry any call, preferably at another endpoint.
    Elsewhere,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_local_unless_marked_and_the_mark_does_not_affect_comparison() {
        let local = Status::not_found("x");
        let remote = local.clone().into_remote();
        assert!(!local.is_remote() && remote.is_remote());
        assert_eq!(local, remote);
    }

    #[test]
    fn status_is_one_pointer_wide() {
        assert_eq!(size_of::<Result<(), Status>>(), size_of::<usize>());
    }

    #[test]
    fn hidden_cause_is_the_source_and_not_in_the_message() {
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
    fn display_shows_code_number_and_message() {
        let status = Status::internal("custom error").with_number(54321);
        assert_eq!(status.to_string(), "internal (54321): custom error");
        assert_eq!(Status::cancelled("").to_string(), "cancelled");
    }
}

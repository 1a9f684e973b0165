//! brpc's error numbers and their mapping to status codes.
//!
//! One table: each number with its [`Code`], the party at fault, and whether brpc's client would retry (brpc
//! `errno.proto`, `retry_policy.cpp`).

use std::borrow::Cow;

use polyrpc_core::status::texts;
use polyrpc_core::{Code, Fault, Retry, Status};

/// Returns the number sent to a peer for `status`: its own if it has one, else the one for its code.
pub fn number(status: &Status) -> i32 {
    // 0 means success.
    status.number().filter(|number| *number != 0).unwrap_or_else(|| number_of(status.code()))
}

/// Returns the failure that a peer reports by `number`.
#[cold]
pub fn status(number: i32, text: impl Into<Cow<'static, str>>) -> Status {
    let text = text.into();
    let (code, fault) = row(number).map_or((Code::Unknown, Fault::Peer), |row| (row.code, row.fault));
    let retry = retry_of(number, &text).unwrap_or(Retry::Never);
    Status::new(code, text).with_number(number).with_fault(fault).with_retry(retry)
}

/// Returns brpc's name of `number`, such as `ENOMETHOD`.
pub fn name(number: i32) -> Option<&'static str> {
    row(number).map(|row| row.name)
}

/// Returns the code for `number`, if it is one of brpc's.
pub(crate) fn code_of(number: i32) -> Option<Code> {
    row(number).map(|row| row.code)
}

/// Returns whether a call that failed with `number` and this text may be retried, if the number is one of brpc's.
pub(crate) fn retry_of(number: i32, text: &str) -> Option<Retry> {
    match number {
        // Handlers fail with it too.
        ELIMIT if texts::is_rejection(text) => Some(Retry::Elsewhere),
        _ => row(number).map(|row| row.retry),
    }
}

fn row(number: i32) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.number == number)
}

/// Returns the number for a failure without one of its own.
pub(crate) fn number_of(code: Code) -> i32 {
    match code {
        Code::Cancelled => ECANCELED,
        Code::Unknown | Code::Internal => EINTERNAL,
        // Not EINVAL: brpc's client takes that for a failed connect and isolates the whole server
        // (controller.cpp, does_error_affect_main_socket).
        Code::InvalidArgument => EREQUEST,
        Code::DeadlineExceeded => ERPCTIMEDOUT,
        // Not ENOENT: brpc's client retries on it (retry_policy.cpp).
        Code::NotFound => ESRCH,
        Code::AlreadyExists => EEXIST,
        Code::PermissionDenied => EPERM,
        Code::ResourceExhausted => ELIMIT,
        Code::FailedPrecondition => EBUSY,
        Code::Aborted => EAGAIN,
        Code::OutOfRange => ERANGE,
        Code::Unimplemented => ENOMETHOD,
        // Not ELOGOFF: brpc's client sends nothing more to a server that logs off, and here only the backend of one
        // method may be unavailable.
        Code::Unavailable => EHOSTDOWN,
        Code::DataLoss => EIO,
        Code::Unauthenticated => ERPCAUTH,
    }
}

struct Row {
    number: i32,
    name: &'static str,
    code: Code,
    fault: Fault,
    retry: Retry,
}

macro_rules! table {
    ($($(#[$doc:meta])* $name:ident = $number:literal: $code:ident, $fault:ident, $retry:ident;)*) => {
        $($(#[$doc])* pub const $name: i32 = $number;)*

        const TABLE: &[Row] = &[$(Row {
            number: $number,
            name: stringify!($name),
            code: Code::$code,
            fault: Fault::$fault,
            retry: Retry::$retry,
        }),*];
    };
}

// `Elsewhere` only if the peer surely did not start the call; `IfIdempotent` if brpc's client retries although the peer
// may have started it. The POSIX numbers are Linux's, whatever the platform.
table! {
    /// No service with that short name.
    ENOSERVICE = 1001: Unimplemented, Caller, Never;
    /// No such method, or no service with that full name.
    ENOMETHOD = 1002: Unimplemented, Caller, Never;
    /// The request cannot be parsed or serialized, or a stream was not accepted. A client also reports an undecodable
    /// response with this number.
    EREQUEST = 1003: InvalidArgument, Caller, Never;
    /// The credential was rejected.
    ERPCAUTH = 1004: Unauthenticated, Caller, Never;
    /// Too many calls of a combined channel failed.
    ETOOMANYFAILS = 1005: Unknown, Peer, Never;
    /// A parallel channel has finished and cancels the remaining calls.
    EPCHANFINISH = 1006: Cancelled, Caller, Never;
    /// The delay before a backup request has passed; internal to brpc's client.
    EBACKUPREQUEST = 1007: Internal, Peer, Never;
    /// The call's deadline passed.
    ERPCTIMEDOUT = 1008: DeadlineExceeded, Peer, Never;
    /// The connection broke during the call.
    EFAILEDSOCKET = 1009: Unavailable, Peer, IfIdempotent;
    /// An HTTP server answered with a status other than 2xx.
    EHTTP = 1010: Unknown, Peer, Never;
    /// Too many bytes are queued for writing.
    EOVERCROWDED = 1011: ResourceExhausted, Peer, Elsewhere;
    /// RTMP: the stream can be published.
    ERTMPPUBLISHABLE = 1012: Unknown, Peer, Never;
    /// RTMP: the stream was not created.
    ERTMPCREATESTREAM = 1013: Unknown, Peer, Never;
    /// The peer closed the connection.
    EEOF = 1014: Unavailable, Peer, IfIdempotent;
    /// The connection is no longer needed.
    EUNUSED = 1015: Cancelled, Caller, Never;
    /// TLS failed.
    ESSL = 1016: Unavailable, Peer, Never;
    /// HTTP/2 stream ids are used up, or too many streams are open.
    EH2RUNOUTSTREAMS = 1017: ResourceExhausted, Peer, Elsewhere;
    /// Rejected while a cluster recovers.
    EREJECT = 1018: Unavailable, Peer, Never;
    /// Reading a progressive HTTP body took too long.
    EPROGREADTIMEOUT = 1019: DeadlineExceeded, Peer, Never;
    /// An unspecified failure of the server.
    EINTERNAL = 2001: Internal, Peer, Never;
    /// The response cannot be serialized or parsed.
    ERESPONSE = 2002: Internal, Peer, Never;
    /// The server is stopping.
    ELOGOFF = 2003: Unavailable, Peer, Elsewhere;
    /// A concurrency limit was reached. See [`retry_of`].
    ELIMIT = 2004: ResourceExhausted, Peer, IfIdempotent;
    /// The handler closes the connection.
    ECLOSE = 2005: Unavailable, Peer, Never;
    /// ITP failed.
    EITP = 2006: Unknown, Peer, Never;
    /// The writing half was shut down.
    ESHUTDOWNWRITE = 2007: Unavailable, Peer, Never;
    /// An RDMA verb failed.
    ERDMA = 3001: Internal, Peer, Never;
    /// Memory is not registered for RDMA.
    ERDMAMEM = 3002: Internal, Peer, Never;

    /// The operation is not permitted.
    EPERM = 1: PermissionDenied, Caller, Never;
    /// No such file.
    ENOENT = 2: NotFound, Caller, IfIdempotent;
    /// Not found.
    ESRCH = 3: NotFound, Caller, Never;
    /// Input/output error.
    EIO = 5: DataLoss, Peer, Never;
    /// Try again.
    EAGAIN = 11: Aborted, Peer, IfIdempotent;
    /// Out of memory.
    ENOMEM = 12: ResourceExhausted, Peer, Never;
    /// Access is denied.
    EACCES = 13: PermissionDenied, Caller, Never;
    /// The resource is in use.
    EBUSY = 16: FailedPrecondition, Caller, Never;
    /// The resource exists already.
    EEXIST = 17: AlreadyExists, Caller, Never;
    /// An argument is invalid.
    EINVAL = 22: InvalidArgument, Caller, Never;
    /// The pipe has no reader.
    EPIPE = 32: Unavailable, Peer, IfIdempotent;
    /// A number is out of range.
    ERANGE = 34: OutOfRange, Caller, Never;
    /// No server is available for selection.
    ENODATA = 61: Unavailable, Peer, IfIdempotent;
    /// Protocol violation.
    EPROTO = 71: Internal, Peer, Never;
    /// The peer reset the connection.
    ECONNRESET = 104: Unavailable, Peer, IfIdempotent;
    /// Connecting took too long.
    ETIMEDOUT = 110: Unavailable, Peer, IfIdempotent;
    /// Connection refused.
    ECONNREFUSED = 111: Unavailable, Peer, IfIdempotent;
    /// No usable server.
    EHOSTDOWN = 112: Unavailable, Peer, IfIdempotent;
    /// The call was cancelled.
    ECANCELED = 125: Cancelled, Caller, Never;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_number_round_trips_with_its_meaning() {
        for row in TABLE {
            let read_back = status(row.number, "text");
            assert_eq!(number(&read_back), row.number, "{}", row.name);
            assert_eq!(
                (read_back.code(), read_back.fault(), read_back.retry()),
                (row.code, row.fault, row.retry),
                "{}",
                row.name
            );
            assert_eq!(read_back.message(), "text");
            assert_eq!(name(row.number), Some(row.name));
        }
    }

    #[test]
    fn every_code_round_trips_through_its_number() {
        for code in Code::ALL {
            let want = if code == Code::Unknown { Code::Internal } else { code };
            assert_eq!(status(number(&Status::new(code, "")), "").code(), want, "{code}");
        }
    }

    #[test]
    fn error_numbers_are_unique() {
        for (at, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|earlier| earlier.number != row.number), "{}", row.name);
        }
    }

    #[test]
    fn application_number_is_sent_and_0_becomes_einternal() {
        assert_eq!(number(&Status::internal("").with_number(54321)), 54321);
        assert_eq!(number(&Status::internal("").with_number(0)), EINTERNAL);
        assert_eq!(status(54321, "").code(), Code::Unknown);
    }

    #[test]
    fn only_unstarted_calls_are_retryable_unconditionally() {
        let elsewhere = TABLE.iter().filter(|row| row.retry == Retry::Elsewhere).map(|row| row.name);
        assert_eq!(elsewhere.collect::<Vec<_>>(), ["EOVERCROWDED", "EH2RUNOUTSTREAMS", "ELOGOFF"]);
        assert_eq!(retry_of(ELIMIT, "[E2004]Reached server's max_concurrency=8"), Some(Retry::Elsewhere));
        assert_eq!(retry_of(ELIMIT, "the disk is full"), Some(Retry::IfIdempotent));
    }
}

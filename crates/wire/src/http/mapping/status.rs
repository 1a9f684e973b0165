//! Failures over HTTP: a status, and brpc's number in `x-bd-error-code`.
//!
//! The numbers are those of [brpc](crate::brpc_status), the statuses those that brpc's `policy/http_rpc_protocol.cpp`
//! derives from them.

pub(super) use crate::brpc_status::{ELOGOFF, ENOMETHOD, EREQUEST, ERPCAUTH};

use polyrpc_core::status::texts;
use polyrpc_core::{Code, Retry, Status};

use crate::brpc_status::{
    EAGAIN, EBUSY, ECANCELED, EEXIST, EHOSTDOWN, EINTERNAL, EINVAL, EIO, ELIMIT, ENOENT, ENOSERVICE,
    EOVERCROWDED, EPERM, ERANGE, ERESPONSE, ERPCTIMEDOUT, ESRCH, ETIMEDOUT, code_of, number, number_of,
    retry_of,
};
use crate::http::head::WriteHead;

/// Returns the HTTP status and the number of `status` for the peer. Its own number, if it has one, also determines the
/// HTTP status if brpc assigns one to that number.
pub(super) fn write(status: &Status) -> (u16, i32) {
    let number = number(status);
    if is_too_large(status) {
        return (413, number);
    }
    let http = http_of(number).or_else(|| http_of(number_of(status.code())));
    (http.unwrap_or(500), number)
}

/// Whether a limit was exceeded that another server would not raise: a message is too large. An overloaded server is
/// different (503), since proxies retry elsewhere.
pub(super) fn is_too_large(status: &Status) -> bool {
    let exceeds = status.code() == Code::ResourceExhausted && status.retry() == Retry::Never;
    exceeds && status.number().is_none_or(|number| number == ELIMIT)
}

/// Writes the fields of a failure with this status.
#[cold]
pub(super) fn fields(http: u16, status: &Status, head: &mut impl WriteHead) {
    match http {
        // RFC 9110 §15.5.2 requires one. Only the authenticator knows which schemes are supported.
        401 => head.field("WWW-Authenticate", b"Bearer, Basic realm=\"rpc\""),
        429 | 503 if status.code() == Code::ResourceExhausted => head.field("Retry-After", b"1"),
        _ => {}
    }
}

/// Returns the failure for an HTTP status, and for a number if the peer is brpc or PolyRPC.
#[cold]
pub(crate) fn read(http: u16, number: Option<i32>, text: String) -> Status {
    // A number without an HTTP status of its own is less specific than the received status.
    let code = number.filter(|number| http_of(*number).is_some()).and_then(code_of);
    let status = texts::from_peer(code.unwrap_or_else(|| meaning(http)), text);
    let status = match number {
        // The number may say that the call was not started.
        Some(number) => match retry_of(number, status.message()) {
            Some(retry) if code.is_some() => status.with_number(number).with_retry(retry),
            _ => status.with_number(number),
        },
        None => status,
    };
    match (http, status.code()) {
        (413, Code::ResourceExhausted) => status.with_retry(Retry::Never),
        _ => status,
    }
}

/// Returns the HTTP status for a number.
fn http_of(number: i32) -> Option<u16> {
    Some(match number {
        EREQUEST | EINVAL => 400,
        ERPCAUTH => 401,
        EPERM => 403,
        ENOSERVICE | ENOMETHOD | ESRCH => 404,
        EAGAIN | EEXIST => 409,
        EBUSY => 412,
        ERANGE => 416,
        ECANCELED | EINTERNAL | EIO | ENOENT | EOVERCROWDED | ERESPONSE => 500,
        EHOSTDOWN | ELIMIT | ELOGOFF => 503,
        ERPCTIMEDOUT | ETIMEDOUT => 504,
        _ => return None,
    })
}

/// Returns the code for an HTTP status without further information.
pub(super) fn meaning(http: u16) -> Code {
    match http {
        400 | 406 | 411 | 415 | 421 | 422 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 | 405 | 501 | 505 => Code::Unimplemented,
        408 | 504 => Code::DeadlineExceeded,
        409 => Code::AlreadyExists,
        412 => Code::FailedPrecondition,
        413 | 431 => Code::ResourceExhausted,
        416 => Code::OutOfRange,
        429 => Code::ResourceExhausted,
        499 => Code::Cancelled,
        500 => Code::Internal,
        502 | 503 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips_and_unknown_becomes_internal() {
        for code in Code::ALL {
            let (http, number) = write(&Status::new(code, ""));
            let want = if code == Code::Unknown { Code::Internal } else { code };
            assert_eq!(read(http, Some(number), String::new()).code(), want, "{code}");
        }
    }

    #[test]
    fn every_number_round_trips_with_its_http_status() {
        for (number, http) in (0..5000).filter_map(|number| Some((number, http_of(number)?))) {
            let status = read(http, Some(number), "text".to_owned());
            assert_eq!(write(&status), (http, number));
            assert_eq!((Some(status.code()), status.message()), (code_of(number), "text"));
        }
    }

    #[test]
    fn oversized_message_is_413_and_overload_503() {
        let overload = Status::resource_exhausted("");
        assert_eq!(write(&overload), (503, ELIMIT));
        let too_large = overload.with_retry(Retry::Never);
        assert_eq!(write(&too_large), (413, ELIMIT));
        let back = read(413, Some(ELIMIT), String::new());
        assert_eq!((back.code(), back.retry()), (Code::ResourceExhausted, Retry::Never));
        assert_eq!(
            read(503, Some(ELIMIT), "request reached rate limit".to_owned()).retry(),
            Retry::Elsewhere
        );
        assert_eq!(read(503, Some(ELIMIT), String::new()).retry(), Retry::IfIdempotent);
        assert_eq!(write(&too_large.with_number(54321)).0, 503);
    }

    #[test]
    fn every_code_has_an_http_status() {
        assert!(Code::ALL.into_iter().all(|code| http_of(number_of(code)).is_some()));
    }

    #[test]
    fn brpc_numbers_have_the_http_statuses_of_brpc() {
        for (number, http) in [
            (1001, 404),
            (1002, 404),
            (1003, 400),
            (22, 400),
            (1004, 401),
            (2003, 503),
            (2004, 503),
            (1, 403),
            (1008, 504),
            (110, 504),
            (2001, 500),
            (54321, 500),
        ] {
            assert_eq!(write(&Status::internal("").with_number(number)), (http, number));
        }
    }

    #[test]
    fn unknown_number_leaves_the_http_status_to_the_code() {
        assert_eq!(write(&Status::invalid_argument("").with_number(7)), (400, 7));
        assert_eq!(write(&Status::internal("").with_number(0)), (500, EINTERNAL));
    }

    #[test]
    fn code_follows_the_http_status_without_a_number() {
        assert_eq!(read(503, None, String::new()).code(), Code::Unavailable);
        assert_eq!(read(503, None, String::new()).number(), None);
        assert_eq!(read(418, None, String::new()).code(), Code::Unknown);
    }
}

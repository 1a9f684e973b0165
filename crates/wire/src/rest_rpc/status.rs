//! Failures of rest_rpc: plain texts up to v0.20, a code and a text since v0.21.

use std::borrow::Cow;

use polyrpc_core::status::texts;
use polyrpc_core::status::texts::Text;
use polyrpc_core::{Code, Status};

/// Returns the text of a failure for the peer.
pub(super) fn text(status: &Status) -> &str {
    status.message_or_code()
}

/// Parses a failure from a text, up to v0.20.
#[cold]
pub(super) fn from_text(text: String) -> Status {
    texts::read(text, TEXTS)
}

/// Returns the code and the text of a failure for the peer, since v0.21. Only two codes are sent: every failure other
/// than an unknown function is an exception of the function (rest_rpc `rpc_router.hpp`).
pub(super) fn to_code_and_text(status: &Status) -> (u8, Cow<'_, str>) {
    let text = text(status);
    // A function may fail with the same text.
    match status.code() == Code::Unimplemented && text.starts_with(UNKNOWN) {
        true => (NO_SUCH_FUNCTION, text.into()),
        false => (FUNCTION_EXCEPTION, format!("{EXCEPTION}{text}").into()),
    }
}

/// Parses a failure from a code and a text, since v0.21.
#[cold]
pub(super) fn from_code(code: u8, text: &str) -> Status {
    match (code, text.strip_prefix(EXCEPTION)) {
        (FUNCTION_EXCEPTION, Some(text)) => from_text(text.to_owned()),
        _ => {
            let known = CODES.iter().find(|(number, _)| *number == code);
            let code = known.map_or(Code::Unknown, |(_, code)| *code);
            texts::from_peer(code, text.to_owned())
        }
    }
}

/// Returns the failure of a call to an unknown function: by its name, or by the number in the call.
#[cold]
pub(super) fn not_found(name: &dyn std::fmt::Display) -> Status {
    Status::unimplemented(format!("{UNKNOWN}{name}"))
}

/// Returns the failure of a call whose arguments do not match the function (rest_rpc `codec.h`).
#[cold]
pub(super) fn argument_mismatch() -> Status {
    Status::invalid_argument(NO_MATCH)
}

/// Returns the failure of a call, up to v0.20, whose number of arguments does not match its function. It starts with
/// the peer's text.
#[cold]
pub fn wrong_count(expected: usize, found: usize) -> Status {
    let arguments = if expected == 1 { "argument" } else { "arguments" };
    Status::invalid_argument(format!("{NO_MATCH} expected {expected} {arguments}, found {found}"))
}

/// Returns the failure of a call with malformed arguments: the peer's text alone, or that of [`wrong_count`].
#[cold]
pub(super) fn unreadable(status: Status) -> Status {
    if status.message().starts_with(NO_MATCH) { status } else { argument_mismatch() }
}

/// Returns the failure of a call whose result is longer than any client accepts (rest_rpc `connection.h`).
#[cold]
pub(super) fn too_long(name: &str) -> Status {
    Status::out_of_range(format!("{TOO_LONG}{name}"))
}

/// Returns the failure of a call received after the server started to shut down.
#[cold]
pub(super) fn shutting_down() -> Status {
    Status::unavailable(SHUTTING_DOWN)
}

/// Texts that imply a more specific code.
const TEXTS: &[(Text, Code)] = &[
    (Text::Begins(UNKNOWN), Code::Unimplemented),
    (Text::Begins(NO_MATCH), Code::InvalidArgument),
    (Text::Begins(TOO_LONG), Code::OutOfRange),
    (Text::Is(SHUTTING_DOWN), Code::Unavailable),
];

const UNKNOWN: &str = "unknown function: ";
const NO_MATCH: &str = "unpack failed: Args not match!";
const TOO_LONG: &str = "the response result is out of range: more than 10M ";
/// The peer writes no blank after it.
const EXCEPTION: &str = "exception occur when call";
/// Our own text: the peer closes its connections instead of rejecting calls on them.
const SHUTTING_DOWN: &str = "rest_rpc: server is shutting down";

/// Codes since v0.21 (rest_rpc `error_code.h`, `rpc_errc`). A server sends 1, 4 and 5; the peer's client uses the
/// others locally, but nothing forbids them on the wire.
const CODES: &[(u8, Code)] = &[
    (NO_SUCH_FUNCTION, Code::Unimplemented),
    // no_such_key
    (2, Code::NotFound),
    // invalid_req_type
    (3, Code::InvalidArgument),
    (FUNCTION_EXCEPTION, Code::Unknown),
    // function_unknown_exception: the thrown object is not a `std::exception`
    (5, Code::Internal),
    // invalid_argument
    (6, Code::InvalidArgument),
    // write_error, read_error, socket_closed
    (7, Code::Unavailable),
    (8, Code::Unavailable),
    (9, Code::Unavailable),
    // resolve_timeout, connection_timeout, request_timeout
    (10, Code::DeadlineExceeded),
    (11, Code::DeadlineExceeded),
    (12, Code::DeadlineExceeded),
    // protocol_error
    (13, Code::Internal),
    // has_response
    (14, Code::FailedPrecondition),
    // duplicate_topic
    (15, Code::AlreadyExists),
    // rpc_context_init_failed
    (16, Code::Internal),
];

const NO_SUCH_FUNCTION: u8 = 1;
const FUNCTION_EXCEPTION: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_failure_texts_are_parsed_back() {
        for status in [
            not_found(&"nosuch"),
            not_found(&2_470_863_502_u32),
            argument_mismatch(),
            wrong_count(2, 3),
            too_long("echo"),
            shutting_down(),
            Status::internal("[service internal error]: oops"),
            Status::deadline_exceeded("the method did not answer in time"),
            Status::resource_exhausted("Reached server's max_concurrency=4"),
            Status::resource_exhausted("Reached the method's max_concurrency=4"),
            Status::resource_exhausted("request reached rate limit"),
            Status::unknown("boom"),
        ] {
            assert_eq!(from_text(text(&status).to_owned()), status);
            let (code, text) = to_code_and_text(&status);
            assert_eq!(from_code(code, &text), status);
        }
    }

    #[test]
    fn texts_equal_those_of_the_peer() {
        assert_eq!(text(&not_found(&"nosuch")), "unknown function: nosuch");
        assert_eq!(to_code_and_text(&not_found(&7)), (1, "unknown function: 7".into()));
        let same_words = Status::unknown("unknown function: 7");
        assert_eq!(to_code_and_text(&same_words), (4, "exception occur when callunknown function: 7".into()));
        assert_eq!(to_code_and_text(&Status::unknown("boom")), (4, "exception occur when callboom".into()));
        assert_eq!(text(&argument_mismatch()), "unpack failed: Args not match!");
        let wrong_count = wrong_count(1, 0);
        assert_eq!(text(&wrong_count), "unpack failed: Args not match! expected 1 argument, found 0");
        assert_eq!(unreadable(wrong_count.clone()), wrong_count);
        assert_eq!(unreadable(Status::invalid_argument("cannot read the value")), argument_mismatch());
    }

    #[test]
    fn every_code_is_parsed_back() {
        for (code, want) in CODES {
            assert_eq!(from_code(*code, "why").code(), *want, "{code}");
        }
        assert_eq!(from_code(200, "why"), Status::unknown("why"));
    }

    #[test]
    fn failure_without_a_text_is_sent_as_its_code() {
        for code in Code::ALL {
            assert_eq!(text(&Status::new(code, "")), code.as_str());
        }
    }
}

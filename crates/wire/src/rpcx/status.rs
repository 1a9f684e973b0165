//! rpcx failures are plain texts; this is the table of texts that imply a code.

use std::borrow::Cow;

use polyrpc_core::session::NotFound;
use polyrpc_core::status::texts;
use polyrpc_core::status::texts::Text;
use polyrpc_core::{Call, Code, Format, Status};

use super::frame;
use super::panic::Panic;

/// Returns the text of a failure for the peer. The text of a panic names the method, like rpcx's (`server/service.go`,
/// `call`); the arguments and the stack trace that rpcx adds there are not disclosed.
pub(super) fn write<'s>(status: &'s Status, method: &[u8]) -> Cow<'s, str> {
    let words = status.message_or_code();
    match words.starts_with(PANIC) && !words.contains(METHOD) {
        true => Cow::Owned(format!("{words}{METHOD}{}", String::from_utf8_lossy(method))),
        false => Cow::Borrowed(words),
    }
}

/// Parses a failure from the peer's text. The stack trace of a panic is stored in the details.
#[cold]
pub(super) fn read(text: &str) -> Status {
    match text.starts_with(PANIC).then(|| Panic::parse(text)).flatten() {
        Some(panic) => texts::read(panic.first_line().to_owned(), TEXTS).with_details(panic.details()),
        None => texts::read(text.to_owned(), TEXTS),
    }
}

/// Returns the failure of a call to an unknown service or method (rpcx `server/server_dispatch.go`).
#[cold]
pub(super) fn not_found(call: &Call<'_>, missing: NotFound) -> Status {
    Status::unimplemented(match missing {
        NotFound::Service => format!("{NO_SERVICE}{}", call.service_or_function()),
        NotFound::Method => format!("{NO_METHOD}{}", call.method),
    })
}

/// Returns the failure of a call whose method exists but does not support this format (rpcx
/// `server/server_dispatch.go`).
#[cold]
pub fn no_codec(format: Format) -> Status {
    Status::unimplemented(match frame::serialize(format) {
        Some(number) => format!("{NO_CODEC}{number}"),
        None => format!("{NO_CODEC}{}", format.as_str()),
    })
}

/// Returns the failure of a call received after the server started to shut down.
#[cold]
pub(super) fn shutting_down() -> Status {
    Status::unavailable(SHUTTING_DOWN)
}

/// Texts that imply a more specific code.
const TEXTS: &[(Text, Code)] = &[
    (Text::Begins(NO_SERVICE), Code::Unimplemented),
    (Text::Begins(NO_METHOD), Code::Unimplemented),
    (Text::Begins(NO_CODEC), Code::Unimplemented),
    // `server.ErrReqReachLimit`: rejected before the method was looked up.
    (Text::Is("request reached rate limit"), Code::ResourceExhausted),
    // Returned by a Go handler when `__ServerTimeout` expired or its context was cancelled.
    (Text::Is("context deadline exceeded"), Code::DeadlineExceeded),
    (Text::Is("context canceled"), Code::Cancelled),
    (Text::Is(SHUTTING_DOWN), Code::Unavailable),
];

const NO_SERVICE: &str = "rpcx: can't find service ";
const NO_METHOD: &str = "rpcx: can't find method ";
const NO_CODEC: &str = "can not find codec for ";
const PANIC: &str = "[service internal error]: ";
const METHOD: &str = ", method: ";

/// Our own text: rpcx closes its connections instead of rejecting calls on them, so it has no such text, and its client
/// treats every text as the handler's own (`client/xclient.go`, `uncoverError`).
const SHUTTING_DOWN: &str = "rpcx: server is shutting down";

#[cfg(test)]
mod tests {
    use polyrpc_core::{Fault, Json, Retry};

    use super::*;

    #[test]
    fn own_failure_texts_are_parsed_back() {
        let call = Call::new("Arith", "Mul", Format::MessagePack, Default::default());
        for status in [
            not_found(&call, NotFound::Service),
            not_found(&call, NotFound::Method),
            no_codec(Format::Other(4)),
            no_codec(Format::ProtoText),
            shutting_down(),
            Status::resource_exhausted("request reached rate limit"),
            Status::internal("[service internal error]: oops, method: Panic"),
            Status::deadline_exceeded("context deadline exceeded"),
            Status::cancelled("context canceled"),
            Status::deadline_exceeded("the method did not answer in time"),
            Status::resource_exhausted("Reached server's max_concurrency=4"),
            Status::resource_exhausted("Reached the method's max_concurrency=4"),
            Status::unauthenticated("unauthenticated"),
            Status::unknown("boom"),
        ] {
            assert_eq!(read(&write(&status, b"Mul")), status);
        }
    }

    #[test]
    fn texts_equal_those_of_the_peer() {
        let call = Call::new("NoSuch", "Nope", Format::Raw, Default::default());
        assert_eq!(write(&not_found(&call, NotFound::Service), b"Nope"), "rpcx: can't find service NoSuch");
        assert_eq!(write(&not_found(&call, NotFound::Method), b"Nope"), "rpcx: can't find method Nope");
        assert_eq!(write(&no_codec(Format::Other(9)), b"Nope"), "can not find codec for 9");
        assert_eq!(write(&no_codec(Format::Json(Json::Go)), b"Nope"), "can not find codec for 1");
        let function = Call::new("", "add", Format::Raw, Default::default());
        assert_eq!(write(&not_found(&function, NotFound::Service), b"add"), "rpcx: can't find service add");
        let panicked = Status::internal("[service internal error]: oops");
        assert_eq!(write(&panicked, b"Panic"), "[service internal error]: oops, method: Panic");
    }

    #[test]
    fn only_unstarted_calls_are_retryable_elsewhere() {
        let classify = |text| (read(text).code(), read(text).fault(), read(text).retry());
        for (text, want) in [
            ("rpcx: can't find service X", (Code::Unimplemented, Fault::Caller, Retry::Never)),
            ("rpcx: can't find method X", (Code::Unimplemented, Fault::Caller, Retry::Never)),
            ("can not find codec for 4", (Code::Unimplemented, Fault::Caller, Retry::Never)),
            ("request reached rate limit", (Code::ResourceExhausted, Fault::Peer, Retry::Elsewhere)),
            ("[service internal error]: oops, method: M", (Code::Internal, Fault::Peer, Retry::Never)),
            ("context deadline exceeded", (Code::DeadlineExceeded, Fault::Peer, Retry::Never)),
            ("context canceled", (Code::Cancelled, Fault::Caller, Retry::Never)),
            ("rpcx: server is shutting down", (Code::Unavailable, Fault::Peer, Retry::Elsewhere)),
            ("boom", (Code::Unknown, Fault::Peer, Retry::Never)),
            ("my request reached rate limit", (Code::Unknown, Fault::Peer, Retry::Never)),
            ("", (Code::Unknown, Fault::Peer, Retry::Never)),
        ] {
            assert_eq!(classify(text), want, "{text}");
        }
    }

    #[test]
    fn failure_without_a_text_is_sent_as_its_code() {
        for code in Code::ALL {
            assert_eq!(write(&Status::new(code, ""), b"Mul"), code.as_str());
        }
    }
}

//! Failures of net/rpc, which are nothing but texts: a table of those that say more.

use polyrpc_core::session::NotFound;
use polyrpc_core::status::texts;
use polyrpc_core::status::texts::Text;
use polyrpc_core::{Call, Code, Status};

/// The text that tells a peer of a failure. It is never empty: an empty one is a success.
pub(super) fn write(status: &Status) -> &str {
    status.message_or_code()
}

/// The failure that a peer's text tells of.
#[cold]
pub(super) fn read(text: &str) -> Status {
    texts::read(text.to_owned(), TEXTS)
}

/// The failure of a call to what does not exist (Go `net/rpc/server.go`, `readRequestHeader`).
#[cold]
pub(super) fn unknown(call: &Call<'_>, missing: NotFound) -> Status {
    let Call { service, method, .. } = call;
    Status::unimplemented(match missing {
        // Where there is no function of that name, it lacks the service: one without a name if there is a dot.
        _ if service.is_empty() && method.contains('.') => format!("{NO_SERVICE}{method}"),
        _ if service.is_empty() => format!("{ILL_FORMED}{method}"),
        NotFound::Service => format!("{NO_SERVICE}{service}.{method}"),
        NotFound::Method => format!("{NO_METHOD}{service}.{method}"),
    })
}

/// The failure of a call without arguments (Go `net/rpc/jsonrpc/server.go`).
#[cold]
pub(super) fn missing_params() -> Status {
    Status::invalid_argument(MISSING_PARAMS)
}

/// The failure of a call that says nothing of who calls (rpcx v1.1 `plugin/auth.go`).
#[cold]
pub(super) fn unsigned(name: &str) -> Status {
    Status::unauthenticated(format!("{UNSIGNED}{name}"))
}

/// The failure of a call that came after the server began to go away, in the words of Go's clients.
#[cold]
pub(super) fn shutting_down() -> Status {
    Status::unavailable(SHUT_DOWN)
}

/// The texts that say more than that a call failed.
const TEXTS: &[(Text, Code)] = &[
    (Text::Begins(NO_SERVICE), Code::Unimplemented),
    (Text::Begins(NO_METHOD), Code::Unimplemented),
    (Text::Begins(ILL_FORMED), Code::Unimplemented),
    (Text::Is(MISSING_PARAMS), Code::InvalidArgument),
    (Text::Begins(UNSIGNED), Code::Unauthenticated),
    (Text::Is(SHUT_DOWN), Code::Unavailable),
    // What a Go handler returns when its context was ended.
    (Text::Is("context deadline exceeded"), Code::DeadlineExceeded),
    (Text::Is("context canceled"), Code::Cancelled),
];

const NO_SERVICE: &str = "rpc: can't find service ";
const NO_METHOD: &str = "rpc: can't find method ";
const ILL_FORMED: &str = "rpc: service/method request ill-formed: ";
const MISSING_PARAMS: &str = "jsonrpc: request body missing params";
const UNSIGNED: &str = "wrong authorization format for ";
const SHUT_DOWN: &str = "connection is shut down";

#[cfg(test)]
mod tests {
    use polyrpc_core::{Format, Retry};

    use super::*;

    fn call<'a>(service: &'a str, method: &'a str) -> Call<'a> {
        Call::new(service, method, Format::Gob, Default::default())
    }

    #[test]
    fn what_this_side_says_of_itself_the_other_side_understands() {
        for status in [
            unknown(&call("Arith", "Mul"), NotFound::Service),
            unknown(&call("Arith", "Mul"), NotFound::Method),
            unknown(&call("", "Mul"), NotFound::Service),
            missing_params(),
            unsigned("Arith.Mul"),
            shutting_down(),
            Status::internal("[service internal error]: oops"),
            Status::deadline_exceeded("the method did not answer in time"),
            Status::resource_exhausted("Reached server's max_concurrency=4"),
            Status::resource_exhausted("Reached the method's max_concurrency=4"),
            Status::resource_exhausted("request reached rate limit"),
            Status::unknown("boom"),
        ] {
            assert_eq!(read(write(&status)), status);
        }
    }

    #[test]
    fn the_texts_are_those_of_go() {
        let told = |service, method, missing| write(&unknown(&call(service, method), missing)).to_owned();
        assert_eq!(told("Nope", "Mul", NotFound::Service), "rpc: can't find service Nope.Mul");
        assert_eq!(told("Arith", "Nope", NotFound::Method), "rpc: can't find method Arith.Nope");
        assert_eq!(told("", "Mul", NotFound::Service), "rpc: service/method request ill-formed: Mul");
        assert_eq!(told("", ".Mul", NotFound::Service), "rpc: can't find service .Mul");
        assert_eq!(write(&missing_params()), "jsonrpc: request body missing params");
    }

    #[test]
    fn a_call_that_was_not_begun_may_be_tried_elsewhere_and_others_may_not() {
        assert_eq!(read("connection is shut down").retry(), Retry::Elsewhere);
        assert_eq!(read("boom").retry(), Retry::Never);
        assert_eq!(read("rpc: can't find service X.Y").retry(), Retry::Never);
    }

    #[test]
    fn a_failure_without_words_is_told_by_its_code() {
        for code in Code::ALL {
            assert_eq!(write(&Status::new(code, "")), code.as_str());
        }
    }
}

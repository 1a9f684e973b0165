//! net/rpc failures are plain texts; this is the table of texts that imply a code.

use polyrpc_core::session::NotFound;
use polyrpc_core::status::texts;
use polyrpc_core::status::texts::Text;
use polyrpc_core::{Call, Code, Status};

/// Returns the text of a failure for the peer. It is never empty: an empty one means success.
pub(super) fn write(status: &Status) -> &str {
    status.message_or_code()
}

/// Parses a failure from the peer's text.
#[cold]
pub(super) fn read(text: &str) -> Status {
    texts::read(text.to_owned(), TEXTS)
}

/// Returns the failure of a call to an unknown service or method (Go `net/rpc/server.go`, `readRequestHeader`).
#[cold]
pub(super) fn not_found(call: &Call<'_>, missing: NotFound) -> Status {
    let Call { service, method, .. } = call;
    Status::unimplemented(match missing {
        // An unknown function is reported as a missing service: as one without a name if there is a dot.
        _ if service.is_empty() && method.contains('.') => format!("{NO_SERVICE}{method}"),
        _ if service.is_empty() => format!("{ILL_FORMED}{method}"),
        NotFound::Service => format!("{NO_SERVICE}{service}.{method}"),
        NotFound::Method => format!("{NO_METHOD}{service}.{method}"),
    })
}

/// Returns the failure of a call without arguments (Go `net/rpc/jsonrpc/server.go`).
#[cold]
pub(super) fn missing_params() -> Status {
    Status::invalid_argument(MISSING_PARAMS)
}

/// Returns the failure of a call without a credential (rpcx v1.1 `plugin/auth.go`).
#[cold]
pub(super) fn unsigned(name: &str) -> Status {
    Status::unauthenticated(format!("{UNSIGNED}{name}"))
}

/// Returns the failure of a call received after the server started to shut down, with the text of Go's clients.
#[cold]
pub(super) fn shutting_down() -> Status {
    Status::unavailable(SHUT_DOWN)
}

/// Texts that imply a more specific code.
const TEXTS: &[(Text, Code)] = &[
    (Text::Begins(NO_SERVICE), Code::Unimplemented),
    (Text::Begins(NO_METHOD), Code::Unimplemented),
    (Text::Begins(ILL_FORMED), Code::Unimplemented),
    (Text::Is(MISSING_PARAMS), Code::InvalidArgument),
    (Text::Begins(UNSIGNED), Code::Unauthenticated),
    (Text::Is(SHUT_DOWN), Code::Unavailable),
    // Returned by a Go handler when its context was cancelled.
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
    fn own_failure_texts_are_parsed_back() {
        for status in [
            not_found(&call("Arith", "Mul"), NotFound::Service),
            not_found(&call("Arith", "Mul"), NotFound::Method),
            not_found(&call("", "Mul"), NotFound::Service),
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
    fn texts_equal_those_of_go() {
        let text_of =
            |service, method, missing| write(&not_found(&call(service, method), missing)).to_owned();
        assert_eq!(text_of("Nope", "Mul", NotFound::Service), "rpc: can't find service Nope.Mul");
        assert_eq!(text_of("Arith", "Nope", NotFound::Method), "rpc: can't find method Arith.Nope");
        assert_eq!(text_of("", "Mul", NotFound::Service), "rpc: service/method request ill-formed: Mul");
        assert_eq!(text_of("", ".Mul", NotFound::Service), "rpc: can't find service .Mul");
        assert_eq!(write(&missing_params()), "jsonrpc: request body missing params");
    }

    #[test]
    fn only_unstarted_calls_are_retryable_elsewhere() {
        assert_eq!(read("connection is shut down").retry(), Retry::Elsewhere);
        assert_eq!(read("boom").retry(), Retry::Never);
        assert_eq!(read("rpc: can't find service X.Y").retry(), Retry::Never);
    }

    #[test]
    fn failure_without_a_text_is_sent_as_its_code() {
        for code in Code::ALL {
            assert_eq!(write(&Status::new(code, "")), code.as_str());
        }
    }
}

//! Recognition of failures by their text: in protocols that transmit nothing else, and where a code does not say whether a
//! handler was started.

use crate::{Code, Retry, Status};

/// Pattern of a text.
#[derive(Debug)]
pub enum Text {
    /// The whole text matches.
    Is(&'static str),
    /// The text starts with this.
    Begins(&'static str),
}

impl Text {
    fn covers(&self, text: &str) -> bool {
        match self {
            Self::Is(whole) => text == *whole,
            Self::Begins(start) => text.starts_with(start),
        }
    }
}

/// Parses a failure from the peer's text, by the protocol's own table or else by the texts that our servers send in any
/// protocol. Fault and retry follow from the code.
#[cold]
pub fn read(text: String, table: &[(Text, Code)]) -> Status {
    let known = table.iter().chain(OURS).find(|(known, _)| known.covers(&text));
    let is_too_large = text.starts_with(TOO_LARGE);
    let status = Status::new(known.map_or(Code::Unknown, |(_, code)| *code), text).into_remote();
    // Every server with these limits would answer so.
    if is_too_large { status.with_retry(Retry::Never) } else { status }
}

/// Returns a failure that the peer sent as one of gRPC's codes and a text.
///
/// UNAVAILABLE and RESOURCE_EXHAUSTED do not say whether a handler was started (gRPC `doc/statuscodes.md`: it is not always
/// safe to retry). Such a call is retried only if it is idempotent, unless the text is one that servers send instead of
/// starting it.
#[cold]
pub fn received(code: Code, text: String) -> Status {
    let retry = match code {
        Code::Unavailable | Code::ResourceExhausted if text.starts_with(TOO_LARGE) => Retry::Never,
        Code::Unavailable | Code::ResourceExhausted if is_rejection(&text) => Retry::Elsewhere,
        Code::Unavailable | Code::ResourceExhausted | Code::Aborted => Retry::IfIdempotent,
        _ => Retry::Never,
    };
    Status::new(code, text).with_retry(retry).into_remote()
}

/// Whether a server sends this text instead of starting a call.
fn is_rejection(text: &str) -> bool {
    REJECTIONS.iter().any(|known| known.covers(text))
}

/// Texts of rejections. Those of limits are brpc's (`policy/baidu_rpc_protocol.cpp`) and rpcx's (`server/errors.go`), which
/// our servers send in any protocol; the next is that of our servers alone.
const REJECTIONS: &[Text] = &[
    Text::Begins("Reached server's max_concurrency="),
    Text::Begins("Reached the method's max_concurrency="),
    Text::Begins("reached the limit of "),
    Text::Is("request reached rate limit"),
    Text::Is("the server is shutting down"),
];

/// Begins the text of a request that exceeds a limit of the server.
pub const TOO_LARGE: &str = "the request is too large: ";

/// Texts that our servers send in any protocol.
const OURS: &[(Text, Code)] = &[
    // A panic of the handler, in rpcx's wording (`server/service.go`), possibly followed by a stack trace.
    (Text::Begins("[service internal error]: "), Code::Internal),
    (Text::Begins("the method did not answer in time"), Code::DeadlineExceeded),
    (Text::Begins("Reached server's max_concurrency="), Code::ResourceExhausted),
    (Text::Begins("Reached the method's max_concurrency="), Code::ResourceExhausted),
    (Text::Is("request reached rate limit"), Code::ResourceExhausted),
    (Text::Begins(TOO_LARGE), Code::ResourceExhausted),
    // A rejected credential, if the authenticator supplies no text.
    (Text::Is("unauthenticated"), Code::Unauthenticated),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rejections_are_retried_although_the_call_is_not_idempotent() {
        let retry = |code, text: &str| received(code, text.to_owned()).retry();
        for code in [Code::Unavailable, Code::ResourceExhausted] {
            assert_eq!(retry(code, "the disk is full"), Retry::IfIdempotent);
            assert_eq!(retry(code, ""), Retry::IfIdempotent);
            assert_eq!(retry(code, "Reached server's max_concurrency=8"), Retry::Elsewhere);
            assert_eq!(retry(code, "the request is too large: 9 bytes"), Retry::Never);
        }
        assert_eq!(retry(Code::Unavailable, "the server is shutting down"), Retry::Elsewhere);
        assert_eq!(retry(Code::Aborted, "the server is shutting down"), Retry::IfIdempotent);
        assert_eq!(retry(Code::Internal, "Reached server's max_concurrency=8"), Retry::Never);
    }
}

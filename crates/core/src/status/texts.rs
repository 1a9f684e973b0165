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
    let known = table.iter().chain(POLYRPC_TEXTS).find(|(known, _)| known.covers(&text));
    let is_too_large = text.starts_with(TOO_LARGE);
    let status = Status::new(known.map_or(Code::Unknown, |(_, code)| *code), text).into_remote();
    // Every server with these limits would answer so.
    if is_too_large { status.with_retry(Retry::Never) } else { status }
}

/// Returns a failure that the peer sent as one of gRPC's codes and a text.
#[cold]
pub fn from_peer(code: Code, text: String) -> Status {
    failure(code, text).into_remote()
}

/// Returns the failure of a call that its peer, or a proxy before it, has failed with one of gRPC's codes, with this text of
/// ours.
#[cold]
pub fn failure(code: Code, text: String) -> Status {
    let retry = retry_of(code, &text);
    Status::new(code, text).with_retry(retry)
}

/// Returns whether a call may be retried that failed at its peer with one of gRPC's codes and a text.
///
/// UNAVAILABLE and RESOURCE_EXHAUSTED do not say whether a handler was started (gRPC `doc/statuscodes.md`: it is not always
/// safe to retry). Such a call is retried only if it is idempotent, unless the text is that of a rejection.
#[cold]
fn retry_of(code: Code, text: &str) -> Retry {
    match code {
        Code::Unavailable | Code::ResourceExhausted if text.starts_with(TOO_LARGE) => Retry::Never,
        Code::Unavailable | Code::ResourceExhausted if is_rejection(text) => Retry::Elsewhere,
        Code::Unavailable | Code::ResourceExhausted | Code::Aborted => Retry::IfIdempotent,
        _ => Retry::Never,
    }
}

/// Whether servers send this text instead of starting a call.
pub fn is_rejection(text: &str) -> bool {
    let text = without_brpc_prefix(text);
    let is_unreachable = text.starts_with(UPSTREAM) && text.ends_with(UNREACHABLE);
    is_unreachable || REJECTIONS.iter().any(|known| known.covers(text))
}

/// Texts of rejections.
const REJECTIONS: &[Text] = &[
    // brpc: `policy/baidu_rpc_protocol.cpp`, `server.cpp`. The first and the last are also sent by our servers.
    Text::Begins("Reached server's max_concurrency="),
    Text::Begins("Rejected by "),
    Text::Begins("Too many user code to run when "),
    Text::Is("Server is stopping"),
    // rpcx: `server/errors.go`.
    Text::Is("request reached rate limit"),
    // Our servers and gateways.
    Text::Begins("Reached the method's max_concurrency="),
    Text::Begins("too many open streams: "),
    Text::Is("the server's memory budget for this peer is used up; try again later"),
    Text::Is("the credential could not be checked in time"),
    Text::Is("the server is shutting down"),
    Text::Is("earlier responses on this connection are not read; try again later"),
    Text::Begins("polyrpc-gateway: overloaded: "),
];

/// Begins and ends the text of a gateway that cannot reach the servers of an upstream.
const UPSTREAM: &str = "polyrpc-gateway: upstream `";
const UNREACHABLE: &str = "` cannot be reached";

/// Returns the text without what brpc's servers put before it: `[ip:port]`, `[E1003]`.
pub fn without_brpc_prefix(mut text: &str) -> &str {
    while let Some((inner, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = ["E", "R"].iter().any(|letter| inner.strip_prefix(letter).is_some_and(is_digits));
        let is_address = inner.rsplit_once(':').is_some_and(|(host, port)| {
            is_digits(port) && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        });
        // That of a Unix socket.
        let is_path = inner.starts_with("unix:");
        // An address of IPv6 is in brackets of its own, which end after the port.
        let rest = match inner.starts_with('[') {
            true => rest.split_once(']').filter(|(port, _)| port.strip_prefix(':').is_some_and(is_digits)),
            false => (is_number || is_address || is_path).then_some(("", rest)),
        };
        let Some((_, rest)) = rest else { break };
        text = rest;
    }
    text
}

/// Begins the text of a request that exceeds a limit of the server.
pub const TOO_LARGE: &str = "the request is too large: ";

/// Texts that our servers send in any protocol.
const POLYRPC_TEXTS: &[(Text, Code)] = &[
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
        for code in [Code::Unavailable, Code::ResourceExhausted] {
            assert_eq!(retry_of(code, "the disk is full"), Retry::IfIdempotent);
            assert_eq!(retry_of(code, ""), Retry::IfIdempotent);
            assert_eq!(retry_of(code, "Reached server's max_concurrency=8"), Retry::Elsewhere);
            assert_eq!(
                retry_of(code, "[10.0.0.7:80][E2004]Reached server's max_concurrency=8"),
                Retry::Elsewhere
            );
            assert_eq!(
                retry_of(code, "polyrpc-gateway: upstream `users` cannot be reached"),
                Retry::Elsewhere
            );
            assert_eq!(retry_of(code, "the request is too large: 9 bytes"), Retry::Never);
        }
        assert_eq!(retry_of(Code::Unavailable, "the server is shutting down"), Retry::Elsewhere);
        assert_eq!(retry_of(Code::Aborted, "the server is shutting down"), Retry::IfIdempotent);
        assert_eq!(retry_of(Code::Internal, "Reached server's max_concurrency=8"), Retry::Never);
    }
}

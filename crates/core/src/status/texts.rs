//! Recognition of failures in protocols that transmit only a text.

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

//! Failures that travel as nothing but a text: how those are recognised that say more than that a call failed.

use crate::{Code, Status};

/// How a text is recognised.
#[derive(Debug)]
pub enum Text {
    /// The whole text.
    Is(&'static str),
    /// The beginning of the text.
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

/// The failure that a peer's text tells of, by the protocol's own table or else by what a server of ours says by any
/// protocol. Whose fault it is and whether the call may be tried again follows from the code.
#[cold]
pub fn read(text: String, table: &[(Text, Code)]) -> Status {
    let known = table.iter().chain(OURS).find(|(known, _)| known.covers(&text));
    Status::new(known.map_or(Code::Unknown, |(_, code)| *code), text)
}

/// What a server of ours says by any protocol.
const OURS: &[(Text, Code)] = &[
    // A panic of the handler, in rpcx's words (`server/service.go`), behind which a stack trace may follow.
    (Text::Begins("[service internal error]: "), Code::Internal),
    (Text::Begins("the method did not answer in time"), Code::DeadlineExceeded),
    (Text::Begins("Reached server's max_concurrency="), Code::ResourceExhausted),
    (Text::Begins("Reached the method's max_concurrency="), Code::ResourceExhausted),
    (Text::Is("request reached rate limit"), Code::ResourceExhausted),
    // A refused credential, where the authenticator has no words of its own.
    (Text::Is("unauthenticated"), Code::Unauthenticated),
];

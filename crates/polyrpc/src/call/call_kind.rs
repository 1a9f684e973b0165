use super::streaming::{Incoming, Outgoing};

/// How the messages of a call reach a method and leave it.
pub(crate) enum CallKind {
    /// One each way.
    Whole,
    /// One request, any number of responses.
    Answers(Outgoing),
    /// Any number of requests, one or any number of responses.
    Streams(Incoming, Outgoing),
}

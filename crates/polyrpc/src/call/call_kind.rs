use super::streaming::{Incoming, Outgoing};

/// Number of messages that a method receives and sends.
pub(crate) enum CallKind {
    /// One message each way.
    Whole,
    /// One request, any number of responses.
    Answers(Outgoing),
    /// Any number of requests, one or any number of responses.
    Streams(Incoming, Outgoing),
}

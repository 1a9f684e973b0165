use super::streaming::{Incoming, Outgoing};

/// How the messages of a call come to a method, and leave it.
pub(crate) enum CallKind {
    /// One each way.
    Whole,
    /// One comes, and any number leave.
    Answers(Outgoing),
    /// Any number come, and perhaps leave.
    Streams(Incoming, Outgoing),
}

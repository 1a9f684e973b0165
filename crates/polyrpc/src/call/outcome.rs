use std::fmt;
use std::pin::Pin;

use polyrpc_core::{Metadata, Reply, Status, StreamId};
use tokio::sync::oneshot;

use super::streaming::{IncomingSender, OutgoingReceiver, StreamOptions};

/// In which directions a method has several messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamType {
    /// The caller sends any number of messages.
    pub client_streams: bool,
    /// The method answers with any number of messages.
    pub server_streams: bool,
}

impl StreamType {
    /// One message each way.
    pub const UNARY: Self = Self { client_streams: false, server_streams: false };
    /// Any number of messages each way.
    pub const BIDI: Self = Self { client_streams: true, server_streams: true };

    /// Whether it is one message each way.
    pub fn is_unary(self) -> bool {
        self == Self::UNARY
    }
}

/// A call being answered.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// How a call ended.
#[derive(Debug)]
pub enum Outcome {
    /// With an answer.
    Reply(Reply),
    /// With an answer, and with streams that go on beside it.
    Accept(Box<Reply>, AcceptedStreams),
    /// With the end of an answer of several messages.
    Finish {
        /// Whether it is complete, or why not.
        result: Result<(), Status>,
        /// What travels behind the last message.
        trailers: Metadata,
    },
    /// With the refusal of its credential, in the form that its protocol has for that.
    Unauthenticated(Status),
    /// With the failure to decompress its message, in the form that its protocol has for that.
    Corrupt(Status),
    /// With the wish that the connection be closed instead.
    CloseConnection,
}

impl Outcome {
    /// With a failure.
    pub fn failed(status: Status) -> Self {
        Self::Reply(Reply::failure(status))
    }

    /// Why the call failed. `None` if it did not, or if the connection is closed instead of an answer.
    pub fn failure(&self) -> Option<&Status> {
        match self {
            Self::Reply(reply) => reply.result.as_ref().err(),
            Self::Accept(reply, _) => reply.result.as_ref().err(),
            Self::Finish { result, .. } => result.as_ref().err(),
            Self::Unauthenticated(status) | Self::Corrupt(status) => Some(status),
            Self::CloseConnection => None,
        }
    }

    /// Whether the caller gets what it asked for.
    pub(crate) fn succeeded(&self) -> bool {
        !matches!(self, Self::CloseConnection) && self.failure().is_none()
    }

    /// The answer to a call whose deadline passed before it began.
    #[cold]
    pub(crate) fn expired() -> Self {
        Self::failed(Status::deadline_exceeded(
            "the method did not answer in time: the deadline passed before it began",
        ))
    }
}

/// The streams that a handler has accepted, on their way to the connection.
#[derive(Debug)]
pub struct AcceptedStreams {
    pub(crate) options: StreamOptions,
    pub(crate) streams: Vec<AcceptedStream>,
}

/// The connection's end of an accepted stream.
pub(crate) struct AcceptedStream {
    pub(crate) stream: StreamId,
    pub(crate) feed: IncomingSender,
    pub(crate) drain: OutgoingReceiver,
    /// Sends what the handler sends, until the stream is at its end.
    pub(crate) sending: ResponseFuture,
    /// Closes the stream for what would still be sent.
    pub(crate) over: oneshot::Sender<()>,
}

impl fmt::Debug for AcceptedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptedStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

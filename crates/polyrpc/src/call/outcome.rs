use std::fmt;
use std::pin::Pin;

use polyrpc_core::{Metadata, Reply, Status, StreamId};
use tokio::sync::oneshot;

use super::streaming::{IncomingSender, OutgoingReceiver, StreamOptions};

/// The directions in which a method streams messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamType {
    /// The caller sends any number of messages.
    pub client_streams: bool,
    /// The method returns any number of messages.
    pub server_streams: bool,
}

impl StreamType {
    /// One message each way.
    pub const UNARY: Self = Self { client_streams: false, server_streams: false };
    /// Any number of messages each way.
    pub const BIDI: Self = Self { client_streams: true, server_streams: true };

    /// Returns whether there is one message each way.
    pub fn is_unary(self) -> bool {
        self == Self::UNARY
    }
}

/// Future of a call in progress.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Outcome of a call.
#[derive(Debug)]
pub enum Outcome {
    /// A response.
    Reply(Reply),
    /// A response, and streams that stay open after it.
    Accept(Box<Reply>, AcceptedStreams),
    /// The end of a streaming response.
    Finish {
        /// Whether it is complete, or its failure.
        result: Result<(), Status>,
        /// Trailers, sent after the last message.
        trailers: Metadata,
    },
    /// Its credential was rejected; encoded in the form that its protocol has for that.
    Unauthenticated(Status),
    /// Its message could not be decompressed; encoded in the form that its protocol has for that.
    Corrupt(Status),
    /// The connection is to be closed instead of a response.
    CloseConnection,
}

impl Outcome {
    /// A failure with this status.
    pub fn failed(status: Status) -> Self {
        Self::Reply(Reply::failure(status))
    }

    /// Returns why the call failed. `None` if it did not, or if the connection is closed instead of a response.
    pub fn failure(&self) -> Option<&Status> {
        match self {
            Self::Reply(reply) => reply.result.as_ref().err(),
            Self::Accept(reply, _) => reply.result.as_ref().err(),
            Self::Finish { result, .. } => result.as_ref().err(),
            Self::Unauthenticated(status) | Self::Corrupt(status) => Some(status),
            Self::CloseConnection => None,
        }
    }

    /// Returns whether the caller receives the requested result.
    pub(crate) fn succeeded(&self) -> bool {
        !matches!(self, Self::CloseConnection) && self.failure().is_none()
    }

    /// Returns the outcome of a call whose deadline passed before it started.
    #[cold]
    pub(crate) fn expired() -> Self {
        Self::failed(Status::deadline_exceeded(
            "the method did not answer in time: the deadline passed before it started",
        ))
    }
}

/// The streams that a handler has accepted, to be passed to the connection.
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
    /// Sends the handler's messages until the stream ends.
    pub(crate) sending: ResponseFuture,
    /// Closes the stream to further messages.
    pub(crate) over: oneshot::Sender<()>,
}

impl fmt::Debug for AcceptedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptedStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

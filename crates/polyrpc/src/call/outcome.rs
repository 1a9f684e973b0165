use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use polyrpc_core::{Metadata, Reply, Status, StreamId};
use tokio::sync::oneshot;

use super::streaming::{IncomingSender, OutgoingReceiver, StreamOptions};
use crate::codec::Body;

/// The directions in which a method streams messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamType {
    /// The caller sends any number of messages.
    pub client_streaming: bool,
    /// The method returns any number of messages.
    pub server_streaming: bool,
}

impl StreamType {
    /// One message each way.
    pub const UNARY: Self = Self { client_streaming: false, server_streaming: false };
    /// Any number of messages each way.
    pub const BIDI: Self = Self { client_streaming: true, server_streaming: true };

    /// Returns whether there is one message each way.
    pub fn is_unary(self) -> bool {
        self == Self::UNARY
    }
}

/// Future of a call in progress.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Outcome of a call: a response, the end of a streaming response, or a failure.
#[derive(Debug)]
pub struct Outcome(pub(crate) OutcomeKind);

/// Final state of a call on its connection.
#[derive(Debug)]
pub(crate) enum OutcomeKind {
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
        OutcomeKind::Reply(Reply::failure(status)).into()
    }

    /// Returns why the call failed. `None` if it did not, or if the connection is closed instead of a response.
    pub fn failure(&self) -> Option<&Status> {
        match &self.0 {
            OutcomeKind::Reply(reply) => reply.result.as_ref().err(),
            OutcomeKind::Accept(reply, _) => reply.result.as_ref().err(),
            OutcomeKind::Finish { result, .. } => result.as_ref().err(),
            OutcomeKind::Unauthenticated(status) | OutcomeKind::Corrupt(status) => Some(status),
            OutcomeKind::CloseConnection => None,
        }
    }

    /// Returns the encoded response, not compressed. `None` if the call failed, or if its response is a stream: layers
    /// do not see its messages.
    pub fn body(&self) -> Option<Body> {
        let reply = self.reply()?;
        let bytes = reply.result.as_ref().ok()?.clone();
        Some(Body { positional: reply.head.positional, ..Body::new(reply.head.format, bytes) })
    }

    /// Returns the attachment of the response. `None` if there is no response.
    pub fn attachment(&self) -> Option<&Bytes> {
        self.reply().map(|reply| &reply.attachment)
    }

    /// Replaces the encoded response. It has no effect if there is [none](Self::body).
    pub fn set_body(&mut self, body: Body) {
        if let Some(reply) = self.reply_mut()
            && let Ok(bytes) = &mut reply.result
        {
            (reply.head.format, reply.head.positional) = (body.format, body.positional);
            *bytes = body.bytes;
        }
    }

    /// Returns the metadata that the caller receives before the response. `None` if the response is a stream: it has
    /// already been sent.
    pub fn metadata_mut(&mut self) -> Option<&mut Metadata> {
        Some(&mut self.reply_mut()?.head.metadata)
    }

    /// Returns the metadata that the caller receives after the response. `None` if there is no response.
    pub fn trailers_mut(&mut self) -> Option<&mut Metadata> {
        match &mut self.0 {
            OutcomeKind::Reply(reply) => Some(&mut reply.trailers),
            OutcomeKind::Accept(reply, _) => Some(&mut reply.trailers),
            OutcomeKind::Finish { trailers, .. } => Some(trailers),
            OutcomeKind::Unauthenticated(_) | OutcomeKind::Corrupt(_) | OutcomeKind::CloseConnection => None,
        }
    }

    fn reply(&self) -> Option<&Reply> {
        match &self.0 {
            OutcomeKind::Reply(reply) => Some(reply),
            OutcomeKind::Accept(reply, _) => Some(reply),
            _ => None,
        }
    }

    fn reply_mut(&mut self) -> Option<&mut Reply> {
        match &mut self.0 {
            OutcomeKind::Reply(reply) => Some(reply),
            OutcomeKind::Accept(reply, _) => Some(reply),
            _ => None,
        }
    }

    /// Returns whether the caller receives the requested result.
    pub(crate) fn is_success(&self) -> bool {
        !matches!(self.0, OutcomeKind::CloseConnection) && self.failure().is_none()
    }

    /// Returns the outcome of a call whose deadline passed before it started.
    #[cold]
    pub(crate) fn expired() -> Self {
        Self::failed(Status::deadline_exceeded(
            "the method did not answer in time: the deadline passed before it started",
        ))
    }
}

impl From<OutcomeKind> for Outcome {
    #[inline]
    fn from(kind: OutcomeKind) -> Self {
        Self(kind)
    }
}

/// The streams that a handler has accepted, to be passed to the connection.
#[derive(Debug)]
pub(crate) struct AcceptedStreams {
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
    pub(crate) end_sender: oneshot::Sender<()>,
}

impl fmt::Debug for AcceptedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptedStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

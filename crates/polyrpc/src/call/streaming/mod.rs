//! Streaming calls: several messages in at least one direction.

mod closing;
mod incoming;
mod notify;
mod outgoing;
mod send;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use polyrpc_core::{Metadata, Status};
use tokio::sync::mpsc;

use crate::codec::{MAX_IN_PLACE_BYTES, on_blocking_pool};
use crate::error::{ClientResult, Error, Failure, Result};

pub use polyrpc_core::session::StreamOptions;

pub(crate) use closing::{Closer, Closing};
pub(crate) use incoming::{Incoming, IncomingSender};
pub(crate) use notify::StreamNotify;
pub(crate) use outgoing::{Outgoing, OutgoingReceiver};
pub(crate) use send::send;

/// A stream of messages in one direction of a call.
///
/// A handler takes one as its request, or returns one as its response; for a caller it is the other way round. The
/// first error ends it.
///
/// It has backpressure: a stream is polled only while the peer accepts more, and the peer may send more only when
/// [`message`](Self::message) has taken the earlier messages.
///
/// ```
/// # use polyrpc::{Result, Streaming};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let mut numbers = Streaming::from_iter(0..10);
/// let mut doubled = Streaming::produce(|sender| async move {
///     while let Some(n) = numbers.message().await? {
///         sender.send(2 * n).await?;
///     }
///     Ok(())
/// });
/// let mut sum = 0;
/// while let Some(n) = doubled.message().await? {
///     sum += n;
/// }
/// assert_eq!(sum, 90);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent or received unless it is polled"]
pub struct Streaming<T> {
    messages: Pin<Box<dyn Stream<Item = Result<T>> + Send>>,
    trailers: Trailers,
    ended: bool,
}

/// Where the trailers, received after the last message, are found.
enum Trailers {
    None,
    Of(Incoming),
    At(Arc<OnceLock<Metadata>>),
}

impl<T: Send + 'static> Streaming<T> {
    /// Creates a stream from `messages`; their first error ends the call with that error.
    pub fn from_stream(messages: impl Stream<Item = Result<T>> + Send + 'static) -> Self {
        Self { messages: Box::pin(messages), trailers: Trailers::None, ended: false }
    }

    /// Creates a stream from messages that already exist, or are computed on demand.
    #[expect(clippy::should_implement_trait, reason = "`FromIterator` cannot require `Send`")]
    pub fn from_iter<I>(messages: I) -> Self
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'static,
    {
        Self::from_stream(stream::iter(messages.into_iter().map(Ok)))
    }

    /// Creates a stream of a single message.
    pub fn once(message: T) -> Self {
        Self::from_iter([message])
    }

    /// Creates a stream without messages.
    pub fn empty() -> Self {
        Self::from_stream(stream::empty())
    }

    /// Creates a stream whose messages are sent by a future, which runs only while the stream is polled, and is dropped
    /// with it. Its error ends the stream, after the messages sent before.
    pub fn produce<Fut>(producer: impl FnOnce(Sender<T>) -> Fut) -> Self
    where
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut producer = Some(Box::pin(producer(Sender::new(sender))));
        let mut failure = None;
        Self::from_stream(stream::poll_fn(move |cx| {
            if let Poll::Ready(Some(message)) = receiver.poll_recv(cx) {
                return Poll::Ready(Some(message));
            }
            if let Some(running) = &mut producer
                && let Poll::Ready(result) = running.as_mut().poll(cx)
            {
                producer = None;
                failure = result.err();
                if failure.is_some() {
                    receiver.close();
                }
            }
            match receiver.poll_recv(cx) {
                Poll::Ready(None) if producer.is_some() => Poll::Pending,
                Poll::Ready(None) => Poll::Ready(failure.take().map(Err)),
                next => next,
            }
        }))
    }

    /// Creates a stream and its sender, with a queue of `capacity` messages, at least one. The stream ends when the
    /// last sender is dropped.
    pub fn channel(capacity: usize) -> (Sender<T>, Self) {
        let (sender, mut receiver) = mpsc::channel(capacity.max(1));
        let messages = stream::poll_fn(move |cx| receiver.poll_recv(cx));
        (Sender::new(sender), Self::from_stream(messages))
    }

    /// Creates the stream of the peer's messages, decoded by `decode`.
    pub(crate) fn from_incoming(
        incoming: Incoming,
        mut decode: impl FnMut(Bytes) -> Result<T, Status> + Send + 'static,
    ) -> Self {
        let raw = incoming.clone();
        let messages = stream::poll_fn(move |cx| {
            raw.poll_next(cx).map(|next| next.map(|raw| raw.and_then(&mut decode).map_err(Failure::from)))
        });
        Self { trailers: Trailers::Of(incoming), ..Self::from_stream(messages) }
    }

    /// As [`from_incoming`](Self::from_incoming) for a server, which decodes long messages on blocking threads if that
    /// `decodes_slowly`: its other connections would wait for them.
    pub(crate) fn from_incoming_on_server(
        incoming: Incoming,
        decodes_slowly: impl Fn(&Bytes) -> bool + Send + 'static,
        decode: impl Fn(Bytes) -> Result<T, Status> + Send + Sync + 'static,
    ) -> Self {
        let (raw, decode) = (incoming.clone(), Arc::new(decode));
        let mut decoding: Option<Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>> = None;
        let messages = stream::poll_fn(move |cx| {
            loop {
                if let Some(message) = &mut decoding {
                    let message = ready!(message.as_mut().poll(cx));
                    decoding = None;
                    return Poll::Ready(Some(message.map_err(Failure::from)));
                }
                match ready!(raw.poll_next(cx)) {
                    Some(Ok(bytes)) if bytes.len() > MAX_IN_PLACE_BYTES && decodes_slowly(&bytes) => {
                        let decode = decode.clone();
                        decoding = Some(Box::pin(on_blocking_pool(move || decode(bytes))));
                    }
                    next => {
                        let decoded = next.map(|raw| raw.and_then(|bytes| decode(bytes)));
                        return Poll::Ready(decoded.map(|message| message.map_err(Failure::from)));
                    }
                }
            }
        });
        Self { trailers: Trailers::Of(incoming), ..Self::from_stream(messages) }
    }

    /// Creates the stream of a response's messages. The trailers are put into `trailers` before the end.
    pub(crate) fn answer(
        messages: impl Stream<Item = Result<T>> + Send + 'static,
        trailers: Arc<OnceLock<Metadata>>,
    ) -> Self {
        Self { trailers: Trailers::At(trailers), ..Self::from_stream(messages) }
    }
}

impl<T> Streaming<T> {
    /// Returns the next message; `None` after the last.
    ///
    /// # Errors
    ///
    /// If the stream has failed. The error is returned once; `None` follows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub async fn message(&mut self) -> ClientResult<Option<T>> {
        self.next().await.transpose().map_err(Error::from)
    }

    /// Returns the queue of the peer's messages; `None` for a stream that was created by this process. It must be dropped
    /// before the stream.
    pub(crate) fn incoming(&self) -> Option<Incoming> {
        match &self.trailers {
            Trailers::Of(incoming) => Some(incoming.clone()),
            Trailers::None | Trailers::At(_) => None,
        }
    }

    /// Returns the trailers that the peer sent after its last message (gRPC, gRPC-Web, Connect); empty before
    /// the end, and in a stream that was created by this process.
    pub fn trailers(&self) -> Metadata {
        match &self.trailers {
            Trailers::None => Metadata::new(),
            Trailers::Of(incoming) => incoming.trailers(),
            Trailers::At(trailers) => trailers.get().cloned().unwrap_or_default(),
        }
    }
}

impl<T> Stream for Streaming<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = self.messages.as_mut().poll_next(cx);
        self.ended = matches!(next, Poll::Ready(None | Some(Err(_))));
        next
    }
}

impl<T> fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// Sender of the messages of a [`Streaming::channel`].
pub struct Sender<T> {
    messages: mpsc::Sender<Result<T>>,
    /// Closes a stream attached to a call; its other direction ends too.
    closer: Option<Closer>,
}

impl<T> Sender<T> {
    fn new(messages: mpsc::Sender<Result<T>>) -> Self {
        Self { messages, closer: None }
    }

    /// Adds a closer, which can end the stream while its messages are still read.
    pub(crate) fn with_closer(self, closer: Closer) -> Self {
        Self { closer: Some(closer), ..self }
    }

    /// Sends a message once there is room for it.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](polyrpc_core::Code::Cancelled) if the call has ended, so that messages are no longer received.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses the message.
    pub async fn send(&self, message: T) -> ClientResult<()> {
        self.messages.send(Ok(message)).await.map_err(|_| stream_closed())
    }

    /// Ends the stream with an error, after the messages sent before.
    pub async fn fail(self, error: impl Into<Failure>) {
        // If the receiver was dropped, the error is lost.
        let _ = self.messages.send(Err(error.into())).await;
    }

    /// Ends the stream after the messages sent before, and waits until all of them were received. Clones of the sender
    /// must be dropped for the stream to end.
    ///
    /// A stream attached to a call (brpc, [`Context::accept_stream`](crate::Context::accept_stream)) ends in both
    /// directions, also while its messages are still read: the reader sees the end. The future resolves when the
    /// connection has taken the messages and the end after them. The stream starts with the response of its call: a
    /// handler that waits here before it has responded waits until its deadline.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](polyrpc_core::Code::Cancelled) if messages are no longer received; some may be lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the sender; a stream attached to a call ends all the same.
    pub async fn close(self) -> ClientResult<()> {
        let Self { messages, closer } = self;
        match closer {
            Some(closer) => {
                drop(messages);
                closer.close().await.map_err(|_| stream_closed())
            }
            // All permits are available once no message is queued.
            None => {
                messages.reserve_many(messages.max_capacity()).await.map(drop).map_err(|_| stream_closed())
            }
        }
    }

    /// Returns whether the receiver was dropped.
    pub fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }

    /// Waits until the receiver is dropped.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }
}

#[cold]
fn stream_closed() -> Error {
    Status::cancelled("the receiver was dropped").into()
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { messages: self.messages.clone(), closer: self.closer.clone() }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("closed", &self.is_closed()).finish()
    }
}

#[cfg(test)]
mod tests;

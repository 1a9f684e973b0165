use std::fmt;
use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use polyrpc_core::{Code, Metadata, Status};

use super::streaming_call::{CallReceiver, CallSender};
use crate::Error;
use crate::client::Result;
use crate::client::connection::any_connection::CallEnded;
use crate::codec::Body;

/// Call whose encoded messages are sent and received one by one; opened by
/// [`Client::open_raw`](crate::client::Client::open_raw).
///
/// Dropping it before the end cancels the call.
///
/// A server whose messages are not read may stop reading. To send and receive much, do both concurrently with the
/// halves that [`split`](Self::split) returns.
#[derive(Debug)]
pub struct RawCall {
    sender: RawSender,
    receiver: RawReceiver,
}

impl RawCall {
    pub(super) fn new(sending: CallSender, receiving: CallReceiver) -> Self {
        Self { sender: RawSender(sending), receiver: RawReceiver(receiving) }
    }

    /// Sends a message, as [`RawSender::send`].
    ///
    /// # Errors
    ///
    /// See [`RawSender::send`].
    pub async fn send(&mut self, message: impl Into<Bytes>) -> Result<()> {
        self.sender.send(message).await
    }

    /// Ends the messages, as [`RawSender::finish`]; the response may still continue.
    ///
    /// # Errors
    ///
    /// As [`RawSender::finish`]. If the protocol cannot half-close ([`Unimplemented`](Code::Unimplemented)), the call
    /// continues as before.
    pub async fn finish_sending(&mut self) -> Result<()> {
        self.sender.flush_last().await
    }

    /// Closes the call gracefully: sends what is queued, ends the call, and waits for the server's confirmation.
    ///
    /// A stream attached to a call (brpc) ends in both directions at once: messages that the server still has in flight
    /// are discarded. The future completes when the server has confirmed the close, and so has received all messages.
    /// In a call that can half-close (gRPC), no more messages are sent, and the rest of the response is discarded until
    /// the server ends the call.
    ///
    /// # Errors
    ///
    /// The reason why the call failed, also if it failed earlier; a stream that the server has closed is no error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the call as dropping the call does.
    pub async fn close(self) -> Result<()> {
        let Self { sender, mut receiver } = self;
        // If the call has ended, the other half returns the reason.
        let _ = sender.close().await;
        while receiver.next().await?.is_some() {}
        Ok(())
    }

    /// Receives the next response message, as [`RawReceiver::next`].
    ///
    /// # Errors
    ///
    /// See [`RawReceiver::next`].
    pub async fn next(&mut self) -> Result<Option<Body>> {
        self.receiver.next().await
    }

    /// Returns the leading metadata of the response, as [`RawReceiver::metadata`].
    ///
    /// # Errors
    ///
    /// See [`RawReceiver::metadata`].
    pub async fn metadata(&mut self) -> Result<&Metadata> {
        self.receiver.metadata().await
    }

    /// Returns the trailing metadata; empty before the end.
    pub fn trailers(&self) -> &Metadata {
        self.receiver.trailers()
    }

    pub(super) fn into_halves(self) -> (CallSender, CallReceiver) {
        (self.sender.0, self.receiver.0)
    }

    /// Splits the call into its halves, for two tasks. If both are dropped before the end, the call is cancelled.
    pub fn split(self) -> (RawSender, RawReceiver) {
        (self.sender, self.receiver)
    }
}

/// Sending half of a [`RawCall`].
pub struct RawSender(CallSender);

impl RawSender {
    /// Whether the messages of this direction can end while those of the other continue.
    pub(crate) fn half_closes(&self) -> bool {
        self.0.half_closes()
    }

    /// Sends a message as soon as there is capacity.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](Code::Cancelled) if the call has ended; [`RawReceiver::next`] returns the reason.
    /// [`FailedPrecondition`](Code::FailedPrecondition) after the end of the messages.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it completes may lose the message.
    pub async fn send(&mut self, message: impl Into<Bytes>) -> Result<()> {
        if self.0.is_finished() {
            return Err(finished());
        }
        poll_fn(|cx| self.0.poll_flush(cx)).await.map_err(call_ended)?;
        self.0.push(message.into());
        poll_fn(|cx| match self.0.poll_flush(cx) {
            // Capacity for another message is left to the next send.
            Poll::Pending if self.0.is_empty() => Poll::Ready(Ok(())),
            sent => sent,
        })
        .await
        .map_err(call_ended)
    }

    /// Ends the messages.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send). [`Unimplemented`](Code::Unimplemented) if the protocol cannot half-close: brpc's
    /// streams end in both directions at once, by [`close`](Self::close). Nothing is sent in this case.
    pub async fn finish(mut self) -> Result<()> {
        self.flush_last().await
    }

    /// Ends the call after the sent messages. If the protocol can half-close, only this direction ends, as by
    /// [`finish`](Self::finish); otherwise (brpc) both end, and the other half receives the end once the server
    /// confirms.
    ///
    /// # Errors
    ///
    /// See [`send`](Self::send).
    pub async fn close(mut self) -> Result<()> {
        if self.0.half_closes() {
            return self.flush_last().await;
        }
        poll_fn(|cx| match self.0.poll_flush(cx) {
            Poll::Pending if self.0.is_empty() => Poll::Ready(Ok(())),
            sent => sent,
        })
        .await
        .map_err(call_ended)?;
        self.0.finish_call();
        Ok(())
    }

    async fn flush_last(&mut self) -> Result<()> {
        if !self.0.half_closes() {
            return Err(no_half_close());
        }
        self.0.finish();
        poll_fn(|cx| self.0.poll_flush(cx)).await.map_err(call_ended)
    }
}

/// Receiving half of a [`RawCall`].
pub struct RawReceiver(CallReceiver);

impl RawReceiver {
    /// Receives the next response message; `None` after the last.
    ///
    /// # Errors
    ///
    /// The reason why there are no more messages. It is returned once; `None` follows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub async fn next(&mut self) -> Result<Option<Body>> {
        poll_fn(|cx| self.0.poll_next(cx)).await.transpose().map_err(Error::from)
    }

    /// Returns the leading metadata. Waits until the response has started, which some servers do only with the first
    /// message. The metadata of a stream attached to a call (brpc) are those of the call's reply.
    ///
    /// # Errors
    ///
    /// The reason why there is no response.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn metadata(&mut self) -> Result<&Metadata> {
        static NONE: Metadata = Metadata::new();
        poll_fn(|cx| self.0.poll_head(cx)).await?;
        Ok(self.0.head().map_or(&NONE, |head| &head.metadata))
    }

    /// Returns the trailing metadata; empty before the end.
    pub fn trailers(&self) -> &Metadata {
        self.0.trailers()
    }
}

#[cold]
fn call_ended(_: CallEnded) -> Error {
    Status::cancelled("the call has ended; its receiving half returns the reason").into()
}

#[cold]
fn no_half_close() -> Error {
    Status::unimplemented(
        "the protocol cannot half-close a stream: mark the end in a message of your own, or close the stream",
    )
    .into()
}

#[cold]
fn finished() -> Error {
    Error::new(Code::FailedPrecondition, "the sending half was closed")
}

impl fmt::Debug for RawSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawSender")
    }
}

impl fmt::Debug for RawReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawReceiver")
    }
}

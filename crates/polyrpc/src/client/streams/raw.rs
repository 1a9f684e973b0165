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

/// A call whose encoded messages are sent and received one by one; [`Client::open_raw`](crate::client::Client::open_raw)
/// opens it.
///
/// Dropping it before the end cancels the call.
///
/// A server that is not read from may stop reading. Who sends much and receives much does both at once, with the
/// halves that [`split`](Self::split) gives.
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
    /// As [`RawSender::send`].
    pub async fn send(&mut self, message: impl Into<Bytes>) -> Result<()> {
        self.sender.send(message).await
    }

    /// Says that no more messages follow, as [`RawSender::finish`]; the answer may still go on.
    ///
    /// # Errors
    ///
    /// As [`RawSender::finish`]. Where the protocol cannot say it ([`Unimplemented`](Code::Unimplemented)), the call goes on
    /// as before.
    pub async fn finish_sending(&mut self) -> Result<()> {
        self.sender.flush_last().await
    }

    /// Ends the call in order: what was sent leaves, the server is told, and its word is awaited.
    ///
    /// A stream beside a call (brpc) ends in both directions at once: what the server has still under way is thrown away,
    /// and it is ready when the server has answered the end, and so has seen all that was sent. In a call that can end in
    /// one direction (gRPC) no more messages follow, and the rest of the answer is taken and thrown away until the server
    /// has said how the call ended.
    ///
    /// # Errors
    ///
    /// Why the call failed, also if it had before; a stream that the server has closed is closed well.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the call as dropping the call does.
    pub async fn close(self) -> Result<()> {
        let Self { sender, mut receiver } = self;
        // If the call has ended, the other half says how.
        let _ = sender.close().await;
        while receiver.next().await?.is_some() {}
        Ok(())
    }

    /// The next message of the answer, as [`RawReceiver::next`].
    ///
    /// # Errors
    ///
    /// As [`RawReceiver::next`].
    pub async fn next(&mut self) -> Result<Option<Body>> {
        self.receiver.next().await
    }

    /// What travels before the messages of the answer, as [`RawReceiver::metadata`].
    ///
    /// # Errors
    ///
    /// As [`RawReceiver::metadata`].
    pub async fn metadata(&mut self) -> Result<&Metadata> {
        self.receiver.metadata().await
    }

    /// What travelled behind the last message; empty before the end.
    pub fn trailers(&self) -> &Metadata {
        self.receiver.trailers()
    }

    pub(super) fn into_halves(self) -> (CallSender, CallReceiver) {
        (self.sender.0, self.receiver.0)
    }

    /// The halves of the call, for two tasks. When both are dropped before the end, the call is cancelled.
    pub fn split(self) -> (RawSender, RawReceiver) {
        (self.sender, self.receiver)
    }
}

/// The half of a [`RawCall`] that sends.
pub struct RawSender(CallSender);

impl RawSender {
    /// Sends a message as soon as there is room for it.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](Code::Cancelled) when the call has ended; [`RawReceiver::next`] says how.
    /// [`FailedPrecondition`](Code::FailedPrecondition) behind the end of the messages.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready may lose the message.
    pub async fn send(&mut self, message: impl Into<Bytes>) -> Result<()> {
        if self.0.is_finished() {
            return Err(finished());
        }
        poll_fn(|cx| self.0.poll_flush(cx)).await.map_err(call_ended)?;
        self.0.push(message.into());
        poll_fn(|cx| match self.0.poll_flush(cx) {
            // That there is room for yet another is the next one's matter.
            Poll::Pending if self.0.is_empty() => Poll::Ready(Ok(())),
            sent => sent,
        })
        .await
        .map_err(call_ended)
    }

    /// Says that no more messages follow.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send). [`Unimplemented`](Code::Unimplemented) where the protocol cannot say it while the answer goes
    /// on: brpc's streams end in both directions at once, by [`close`](Self::close). Nothing is sent then.
    pub async fn finish(mut self) -> Result<()> {
        self.flush_last().await
    }

    /// Ends the call behind what was sent: where the protocol can, only this direction, as [`finish`](Self::finish);
    /// else (brpc) both, and the other half finds the end once the server knows.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
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

/// The half of a [`RawCall`] that receives.
pub struct RawReceiver(CallReceiver);

impl RawReceiver {
    /// The next message of the answer; `None` behind the last.
    ///
    /// # Errors
    ///
    /// Why there will be no more messages. It is given once; `None` follows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub async fn next(&mut self) -> Result<Option<Body>> {
        poll_fn(|cx| self.0.poll_next(cx)).await.transpose().map_err(Error::from)
    }

    /// What travels before the messages of the answer. It waits until the answer has begun, which some servers
    /// do only with the first message.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn metadata(&mut self) -> Result<&Metadata> {
        static NONE: Metadata = Metadata::new();
        poll_fn(|cx| self.0.poll_head(cx)).await?;
        Ok(self.0.head().map_or(&NONE, |head| &head.metadata))
    }

    /// What travelled behind the last message; empty before the end.
    pub fn trailers(&self) -> &Metadata {
        self.0.trailers()
    }
}

#[cold]
fn call_ended(_: CallEnded) -> Error {
    Status::cancelled("the call has ended").into()
}

#[cold]
fn no_half_close() -> Error {
    Status::unimplemented(
        "the protocol cannot say that no more messages follow while the other direction goes on: say it in a message \
         of your own, or close the stream",
    )
    .into()
}

#[cold]
fn finished() -> Error {
    Error::new(Code::FailedPrecondition, "no message follows the last")
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

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use polyrpc_wire::{Code, Metadata, Status};

use super::link::Over;
use super::opened::{Receiving, Sending};
use crate::codec::Body;
use crate::{Error, Result};

/// A call whose encoded messages are sent and received one by one; [`Client::open_raw`](super::Client::open_raw)
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
    pub(super) fn new(sending: Sending, receiving: Receiving) -> Self {
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

    /// Says that no more messages follow, as [`RawSender::finish`].
    ///
    /// # Errors
    ///
    /// As [`RawSender::finish`].
    pub async fn finish_sending(&mut self) -> Result<()> {
        self.sender.flush_last().await
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

    pub(super) fn into_halves(self) -> (Sending, Receiving) {
        (self.sender.0, self.receiver.0)
    }

    /// The halves of the call, for two tasks. When both are dropped before the end, the call is cancelled.
    pub fn split(self) -> (RawSender, RawReceiver) {
        (self.sender, self.receiver)
    }
}

/// The half of a [`RawCall`] that sends.
pub struct RawSender(Sending);

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
        poll_fn(|cx| self.0.poll_flush(cx)).await.map_err(over)?;
        self.0.push(message.into());
        poll_fn(|cx| match self.0.poll_flush(cx) {
            // That there is room for yet another is the next one's matter.
            Poll::Pending if self.0.is_empty() => Poll::Ready(Ok(())),
            sent => sent,
        })
        .await
        .map_err(over)
    }

    /// Says that no more messages follow.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn finish(mut self) -> Result<()> {
        self.flush_last().await
    }

    async fn flush_last(&mut self) -> Result<()> {
        self.0.finish();
        poll_fn(|cx| self.0.poll_flush(cx)).await.map_err(over)
    }
}

/// The half of a [`RawCall`] that receives.
pub struct RawReceiver(Receiving);

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
fn over(_: Over) -> Error {
    Status::cancelled("the call has ended").into()
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

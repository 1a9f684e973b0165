//! Streams attached to a call (brpc's streaming_rpc): the caller offers them, the handler accepts.

use super::Context;
use super::stream_offer::refused;
use super::streaming::{Sender, StreamOptions, Streaming};
use crate::Result;
use crate::codec::Codec;

impl Context {
    /// Returns how many streams the caller offers with this call (brpc).
    pub fn offered_streams(&self) -> usize {
        self.offer().map_or(0, |offer| offer.offered.streams)
    }

    /// Accepts the one stream that the caller offers with this call (brpc's `StreamAccept`). Returns the caller's
    /// messages, and a sender to the caller.
    ///
    /// The stream starts when the call is answered, and outlives it: move both ends to a task of their own and return
    /// the response. No message is received or sent before; if the call fails, both ends are closed. Messages are
    /// encoded as the codec prefers and are opaque to the protocol: [`Raw`](crate::codec::Raw) carries bytes.
    ///
    /// A sender waits while the caller leaves more unread than the options allow, and the caller is notified which of
    /// its messages were consumed. The stream ends when both ends are dropped, when it is [closed](Sender::close), when
    /// either side fails, when it was idle for longer than [`idle_timeout`](StreamOptions::idle_timeout) or the
    /// server's limit, or when the caller closes it: then messages that have arrived can still be read, and sent
    /// messages are dropped. [`Streaming::message`] may be cancelled by a timeout without losing a message.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use polyrpc::codec::Raw;
    /// use polyrpc::streaming::{Sender, StreamOptions};
    /// use polyrpc::{Context, Result, Streaming};
    ///
    /// async fn open(cx: &mut Context, greeting: String) -> Result<String> {
    ///     let (incoming, sender) = cx.accept_stream::<Raw, Bytes>(StreamOptions::default())?;
    ///     tokio::spawn(echo(incoming, sender));
    ///     Ok(greeting)
    /// }
    ///
    /// async fn echo(mut incoming: Streaming<Bytes>, sender: Sender<Bytes>) -> Result<()> {
    ///     while let Some(message) = incoming.message().await? {
    ///         sender.send(message).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`FailedPrecondition`](crate::Code::FailedPrecondition) if the caller offers no stream, or several, or they were
    /// accepted before; [`ResourceExhausted`](crate::Code::ResourceExhausted) if its connection has too many.
    pub fn accept_stream<C, M>(&mut self, options: StreamOptions) -> Result<(Streaming<M>, Sender<M>)>
    where
        C: Codec<M>,
        M: Send + 'static,
    {
        if self.offered_streams() > 1 {
            return Err(refused("the caller offers several streams"));
        }
        let mut streams = self.accept_streams::<C, M>(options)?;
        streams.pop().ok_or_else(|| refused("the caller offers no stream"))
    }

    /// Accepts every stream that the caller offers with this call, as [`accept_stream`](Self::accept_stream) accepts
    /// one. Returns them in the caller's order.
    ///
    /// # Errors
    ///
    /// As [`accept_stream`](Self::accept_stream), except that several streams are no error.
    pub fn accept_streams<C, M>(&mut self, options: StreamOptions) -> Result<Vec<(Streaming<M>, Sender<M>)>>
    where
        C: Codec<M>,
        M: Send + 'static,
    {
        let site = self.site();
        let Some(offer) = self.offer_mut() else { return Err(refused("the caller offers no stream")) };
        offer.accept::<C, M>(options, &site)
    }
}

//! Streams beside a call (brpc's streaming_rpc): the caller offers them, the handler accepts.

use super::Context;
use super::stream_offer::refused;
use super::streaming::{Sender, StreamOptions, Streaming};
use crate::Result;
use crate::codec::Codec;

impl Context {
    /// How many streams the caller offers beside this call (brpc).
    pub fn offered_streams(&self) -> usize {
        self.offer().map_or(0, |offer| offer.offered.streams)
    }

    /// Accepts the one stream that the caller offers beside this call (brpc's `StreamAccept`): what he sends, and a way
    /// to send to him.
    ///
    /// The stream begins when the call is answered, and outlives it: hand both ends to a task of their own and return
    /// the answer. Nothing comes, and nothing leaves, before; if the call fails, both ends do. Messages are written as
    /// the codec prefers, and mean nothing to the protocol: [`Raw`](crate::codec::Raw) carries bytes.
    ///
    /// A sender waits while the caller leaves more unread than the options allow, and the caller is told what was taken
    /// of his messages. The stream ends when both ends are dropped, when it is [closed](Sender::close), when either side
    /// fails, when it was idle for longer than [`idle_timeout`](StreamOptions::idle_timeout) or the server's limit, or when
    /// the caller closes it: then messages that had come can still be taken, and what is sent is dropped.
    /// [`Streaming::message`] can be given up by a time-out, and loses nothing by it.
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
    /// [`FailedPrecondition`](Code::FailedPrecondition) when the caller offers no stream, or several, or they were
    /// accepted before; [`ResourceExhausted`](Code::ResourceExhausted) when his connection has too many.
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

    /// Accepts every stream that the caller offers beside this call, as [`accept_stream`](Self::accept_stream) accepts
    /// one. They come in the order in which the caller has them.
    ///
    /// # Errors
    ///
    /// As [`accept_stream`](Self::accept_stream), and never because there are several.
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

//! Streams beside a call (brpc's streaming_rpc): the caller offers them, the handler accepts.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use polyrpc_core::session::Offered;
use polyrpc_core::{Code, Metadata, Status, StreamId};
use tokio::sync::oneshot;

use super::site::Site;
use super::streamed::send;
use super::{Context, Ending, Handling};
use crate::codec::{Body, Codec};
use crate::streaming::{Bell, Closing, Drain, Feed, Incoming, Outgoing, Sender, StreamOptions, Streaming};
use crate::{Failure, Result};

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

/// The streams that a caller offers, until they are accepted.
#[derive(Debug)]
pub(crate) struct Offer {
    offered: Offered,
    bell: Arc<Bell>,
    /// Never locked: it is only reached through `&mut`. It lets threads share a context, as handlers do that hold a
    /// `&Context` while they wait.
    accepted: Mutex<Option<Accepted>>,
}

/// The streams that a handler has accepted, on their way to the connection.
#[derive(Debug)]
pub struct Accepted {
    pub(crate) options: StreamOptions,
    pub(crate) streams: Vec<AcceptedStream>,
}

/// The connection's end of an accepted stream.
pub(crate) struct AcceptedStream {
    pub(crate) stream: StreamId,
    pub(crate) feed: Feed,
    pub(crate) drain: Drain,
    /// Sends what the handler sends, until the stream is at its end.
    pub(crate) sending: Handling,
    /// Closes the stream for what would still be sent.
    pub(crate) over: oneshot::Sender<()>,
}

impl Offer {
    pub(crate) fn new(offered: Offered, bell: Arc<Bell>) -> Self {
        Self { offered, bell, accepted: Mutex::default() }
    }

    pub(super) fn into_accepted(self) -> Option<Accepted> {
        self.accepted.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept<C, M>(&mut self, options: StreamOptions, site: &Site) -> Result<Vec<(Streaming<M>, Sender<M>)>>
    where
        C: Codec<M>,
        M: Send + 'static,
    {
        if self.accepted().is_some() {
            return Err(refused("the streams were accepted before"));
        }
        if self.offered.streams == 0 {
            return Err(Status::resource_exhausted("there are too many streams on the connection").into());
        }
        let first = self.offered.first.0;
        let ids = (0..self.offered.streams as u64).map(|n| StreamId(first + n));
        let (streams, ends) = ids.map(|id| self.accept_one::<C, M>(id, site)).unzip();
        *self.accepted() = Some(Accepted { options, streams });
        Ok(ends)
    }

    fn accepted(&mut self) -> &mut Option<Accepted> {
        self.accepted.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_one<C, M>(&self, stream: StreamId, site: &Site) -> (AcceptedStream, (Streaming<M>, Sender<M>))
    where
        C: Codec<M>,
        M: Send + 'static,
    {
        // No compression is to be undone: messages come as they are.
        let (feed, incoming) = Incoming::new(stream.0, self.bell.clone(), usize::MAX);
        let (outgoing, drain) = Outgoing::new(stream.0, self.bell.clone());
        let (sender, messages) = Streaming::channel(WAITING);
        let (closer, closing) = Closing::new();
        let messages = if self.offered.writable { messages } else { Streaming::empty() };
        let (over, is_over) = oneshot::channel();
        let (reading, was_read) = oneshot::channel::<Infallible>();
        let incoming = Streaming::received(incoming, move |bytes| {
            // It lives as long as whoever takes the messages.
            let _ = &reading;
            C::decode(Body::new(C::PREFERRED, bytes), None)
        });
        let sending = sending::<C, M>(messages, outgoing, is_over, was_read, closing, site.clone());
        let sending = Box::pin(sending);
        (AcceptedStream { stream, feed, drain, sending, over }, (incoming, sender.with_closer(closer)))
    }
}

/// Messages of a handler that wait before their stream's own queue: the hand-over, not a buffer.
const WAITING: usize = 4;

/// Sends what the handler sends, for as long as somebody takes it, and ends when the handler takes nothing any more
/// either: brpc's streams close in both directions at once.
async fn sending<C: Codec<M>, M: Send + 'static>(
    messages: Streaming<M>,
    outgoing: Outgoing,
    is_over: oneshot::Receiver<()>,
    was_read: oneshot::Receiver<Infallible>,
    closing: Closing,
    site: Site,
) -> Ending {
    let (result, sent) = tokio::select! {
        result = send::<C, M>(messages, &outgoing, C::PREFERRED, None) => {
            let sent = result.is_ok();
            (result, sent)
        }
        _ = is_over => (Ok(()), false),
    };
    let result = result.map_err(|status| site.tell(status));
    if result.is_ok() {
        tokio::select! {
            // An error is all that can come: the other end was dropped.
            _ = was_read => {}
            () = closing.asked() => {}
        }
    }
    if sent {
        closing.complete();
    }
    Ending::Finish { result, trailers: Metadata::new() }
}

#[cold]
fn refused(why: &'static str) -> Failure {
    Failure::new(Code::FailedPrecondition, why)
}

impl fmt::Debug for AcceptedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptedStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

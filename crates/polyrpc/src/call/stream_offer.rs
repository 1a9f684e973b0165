use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use polyrpc_core::session::OfferedStreams;
use polyrpc_core::{Code, Metadata, Status, StreamId};
use tokio::sync::oneshot;

use super::streaming::{Closing, Incoming, Outgoing, Sender, StreamNotify, StreamOptions, Streaming, send};
use super::{AcceptedStream, AcceptedStreams, CallSite, Outcome, OutcomeKind};
use crate::codec::{Body, Codec};
use crate::{Failure, Result};

/// The streams that a caller offers, until they are accepted.
#[derive(Debug)]
pub(crate) struct StreamOffer {
    pub(super) offered: OfferedStreams,
    stream_notify: Arc<StreamNotify>,
    /// Never locked: it is only reached through `&mut`. The mutex makes the context `Sync`, for handlers that hold a
    /// `&Context` across an await.
    accepted: Mutex<Option<AcceptedStreams>>,
}

impl StreamOffer {
    pub(crate) fn new(offered: OfferedStreams, stream_notify: Arc<StreamNotify>) -> Self {
        Self { offered, stream_notify, accepted: Mutex::default() }
    }

    pub(super) fn into_accepted(self) -> Option<AcceptedStreams> {
        self.accepted.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn accept<C, M>(
        &mut self,
        options: StreamOptions,
        site: &CallSite,
    ) -> Result<Vec<(Streaming<M>, Sender<M>)>>
    where
        C: Codec<M>,
        M: Send + 'static,
    {
        if self.accepted_mut().is_some() {
            return Err(refused("the streams were already accepted"));
        }
        if self.offered.streams == 0 {
            return Err(Status::resource_exhausted("there are too many streams on the connection").into());
        }
        let first = self.offered.first.0;
        let ids = (0..self.offered.streams as u64).map(|n| StreamId(first + n));
        let (streams, ends) = ids.map(|id| self.accept_one::<C, M>(id, site)).unzip();
        *self.accepted_mut() = Some(AcceptedStreams { options, streams });
        Ok(ends)
    }

    fn accepted_mut(&mut self) -> &mut Option<AcceptedStreams> {
        self.accepted.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_one<C, M>(
        &self,
        stream: StreamId,
        site: &CallSite,
    ) -> (AcceptedStream, (Streaming<M>, Sender<M>))
    where
        C: Codec<M>,
        M: Send + 'static,
    {
        // Messages are not compressed.
        let (feed, incoming) = Incoming::new(stream.0, self.stream_notify.clone(), usize::MAX);
        let (outgoing, drain) = Outgoing::new(stream.0, self.stream_notify.clone());
        let (sender, messages) = Streaming::channel(CHANNEL_CAPACITY);
        let (closer, closing) = Closing::new();
        let messages = if self.offered.writable { messages } else { Streaming::empty() };
        let (end_sender, end_receiver) = oneshot::channel();
        let (reading, was_read) = oneshot::channel::<Infallible>();
        let decodes_slowly = |bytes: &Bytes| C::decodes_slowly(&Body::new(C::PREFERRED, bytes.clone()), None);
        let incoming = Streaming::from_incoming_on_server(incoming, decodes_slowly, move |bytes| {
            // It lives as long as the receiver of the messages.
            let _ = &reading;
            C::decode(Body::new(C::PREFERRED, bytes), None)
        });
        let sending =
            send_messages::<C, M>(messages, outgoing, end_receiver, was_read, closing, site.clone());
        let sending = Box::pin(sending);
        (AcceptedStream { stream, feed, drain, sending, end_sender }, (incoming, sender.with_closer(closer)))
    }
}

/// Capacity of the channel between a handler and its stream's own queue: a hand-over, not a buffer.
const CHANNEL_CAPACITY: usize = 4;

/// Sends the handler's messages for as long as the peer accepts them, and ends when the handler receives no more
/// either: brpc's streams close in both directions at once.
async fn send_messages<C: Codec<M>, M: Send + 'static>(
    messages: Streaming<M>,
    outgoing: Outgoing,
    end_receiver: oneshot::Receiver<()>,
    was_read: oneshot::Receiver<Infallible>,
    closing: Closing,
    site: CallSite,
) -> Outcome {
    let (result, sent) = tokio::select! {
        result = send::<C, M>(messages, &outgoing, C::PREFERRED, None) => {
            let sent = result.is_ok();
            (result, sent)
        }
        _ = end_receiver => (Ok(()), false),
    };
    let result = result.map_err(|status| site.status_for_caller(status));
    if result.is_ok() {
        tokio::select! {
            // Only an error can arrive: the other end was dropped.
            _ = was_read => {}
            () = closing.requested() => {}
        }
    }
    if sent {
        closing.complete();
    }
    OutcomeKind::Finish { result, trailers: Metadata::new() }.into()
}

#[cold]
pub(super) fn refused(why: &'static str) -> Failure {
    Failure::new(Code::FailedPrecondition, why)
}

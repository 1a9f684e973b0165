//! Server's side of streams: a call offers them, and its handler may accept them.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use bytes::Bytes;
use polyrpc_core::Outbox;
use polyrpc_core::session::StreamOptions;

use super::client_streams::settings;
use super::endpoint::Remote;
use super::{CloseReason, StreamEvent, StreamLimits, Streams};
use crate::baidu_std::meta::StreamSettings;

/// The streams of a server's connection.
#[derive(Debug)]
pub(in crate::baidu_std) struct ServerStreams {
    pub(in crate::baidu_std) streams: Streams,
    /// Streams offered by pending calls, by the id that the first stream of each call will have here.
    offers: BTreeMap<u64, Offer>,
    /// Slots reserved for offered streams.
    offered: usize,
    /// Streams that carry the response of a streaming method rather than being attached to a call: when the peer is
    /// gone, so is their call.
    answers: BTreeSet<u64>,
    /// Id of the next stream.
    next: u64,
}

#[derive(Debug)]
struct Offer {
    correlation_id: i64,
    settings: StreamSettings,
}

/// What a pending call remembers of the streams it offered.
#[derive(Clone, Debug)]
pub(in crate::baidu_std) struct PendingOffer {
    /// Id of the client's first stream: the response is wrapped in one of its frames.
    pub(in crate::baidu_std) client: i64,
    /// Id of the first stream here; the others follow it.
    pub(in crate::baidu_std) first: u64,
    /// Number of streams; `None` if the limit leaves no slots for them.
    pub(in crate::baidu_std) count: Option<NonZeroUsize>,
    /// The client accepts messages.
    pub(in crate::baidu_std) writable: bool,
    /// Settings of the accepted streams that are sent to the client.
    pub(in crate::baidu_std) settings: Option<StreamSettings>,
}

impl PendingOffer {
    /// Returns the record of streams that are declined without being offered to the handler.
    pub(in crate::baidu_std) fn none_of(settings: &StreamSettings) -> Option<Self> {
        let (client, writable) = (settings.stream_id?, settings.writable);
        Some(Self { client, first: 0, count: None, writable, settings: None })
    }

    /// Returns the same record with nothing accepted.
    pub(in crate::baidu_std) fn to_declined(&self) -> Self {
        Self { settings: None, ..self.clone() }
    }
}

impl ServerStreams {
    pub(in crate::baidu_std) fn new(limits: StreamLimits, message: usize) -> Self {
        let streams = Streams::new(limits, message);
        Self { streams, offers: BTreeMap::new(), offered: 0, answers: BTreeSet::new(), next: 0 }
    }

    /// Returns the approximate number of received bytes held.
    pub(in crate::baidu_std) fn held(&self) -> usize {
        self.streams.held() + self.offers.len() * size_of::<(u64, Offer)>() + self.offered * size_of::<i64>()
    }

    /// Records the streams that a call offers.
    pub(in crate::baidu_std) fn offer(
        &mut self,
        correlation_id: i64,
        settings: StreamSettings,
    ) -> PendingOffer {
        let client = settings.stream_id.unwrap_or_default();
        let (first, count, writable) = (self.next, 1 + settings.extra_stream_ids.len(), settings.writable);
        let taken = self.streams.len() + self.offered;
        let fits = taken + count <= self.streams.limits.streams;
        if fits {
            self.next += count as u64;
            self.offered += count;
            self.offers.insert(first, Offer { correlation_id, settings });
        }
        let count = NonZeroUsize::new(count).filter(|_| fits);
        PendingOffer { client, first, count, writable, settings: None }
    }

    /// Accepts all streams that a call offers; its response is about to be sent.
    pub(in crate::baidu_std) fn accept(
        &mut self,
        offering: &mut PendingOffer,
        options: &StreamOptions,
    ) -> Vec<u64> {
        let Some(offer) = self.withdraw(offering) else { return Vec::new() };
        let ids: Vec<u64> = (offering.first..).take(1 + offer.settings.extra_stream_ids.len()).collect();
        for (id, remote) in ids.iter().zip(Remote::all(&offer.settings)) {
            self.streams.open_connected(*id, options, remote);
        }
        let mut signed = ids.iter().map(|id| id.cast_signed());
        offering.settings = Some(settings(options, signed.next(), signed.collect()));
        ids
    }

    /// Revokes the acceptance because the response could not be sent.
    #[cold]
    pub(in crate::baidu_std) fn revoke(&mut self, offering: &PendingOffer) {
        let settings = offering.settings.as_ref();
        for id in settings.into_iter().flat_map(StreamSettings::ids) {
            self.streams.fail(id.cast_unsigned(), CloseReason::NotAccepted);
        }
    }

    /// Starts the response of a streaming method on the first stream that its call offers. Returns the correlation id
    /// and the accepted streams; `None` if it has started already.
    pub(in crate::baidu_std) fn start_response(&mut self, first: u64) -> Option<(i64, PendingOffer)> {
        let offer = self.offers.remove(&first)?;
        self.offered -= 1 + offer.settings.extra_stream_ids.len();
        let (client, options) = (offer.settings.stream_id?, StreamOptions::default());
        let remote = Remote::all(&offer.settings).next()?;
        self.streams.open_connected(first, &options, remote);
        self.answers.insert(first);
        let settings = Some(settings(&options, Some(first.cast_signed()), Vec::new()));
        let offering =
            PendingOffer { client, first, count: NonZeroUsize::new(1), writable: remote.writable, settings };
        Some((offer.correlation_id, offering))
    }

    /// Whether there is room for another message. A stream that has not started has room.
    pub(in crate::baidu_std) fn has_room(&self, id: u64) -> bool {
        self.offers.contains_key(&id) || self.streams.has_room(id)
    }

    /// Whether the response of a streaming method has started.
    pub(in crate::baidu_std) fn has_begun(&self, id: u64) -> bool {
        !self.offers.contains_key(&id)
    }

    /// Declines the streams of a call that is answered without them.
    pub(in crate::baidu_std) fn decline(&mut self, offering: &PendingOffer) {
        self.withdraw(offering);
    }

    fn withdraw(&mut self, offering: &PendingOffer) -> Option<Offer> {
        let offer = offering.count.and_then(|_| self.offers.remove(&offering.first))?;
        self.offered -= 1 + offer.settings.extra_stream_ids.len();
        Some(offer)
    }

    /// Ends this side of a stream.
    pub(in crate::baidu_std) fn finish(&mut self, id: u64, is_success: bool, out: &mut Outbox) {
        self.answers.remove(&id);
        self.streams.finish(id, is_success, out);
    }

    /// Returns the next event.
    pub(in crate::baidu_std) fn next_event(&mut self) -> Option<ServerStreamEvent> {
        Some(match self.streams.next_event()? {
            StreamEvent::Message(id, message) => ServerStreamEvent::Message(id, message),
            StreamEvent::Closed(id) if self.answers.remove(&id) => {
                self.streams.forget(id);
                ServerStreamEvent::Gone(id)
            }
            StreamEvent::Closed(id) => ServerStreamEvent::End(id),
            StreamEvent::Reset(id, _) => {
                self.answers.remove(&id);
                ServerStreamEvent::Gone(id)
            }
            StreamEvent::Room(id) => ServerStreamEvent::Room(id),
            // Only a client waits for responses.
            StreamEvent::Unanswered(id, _) => ServerStreamEvent::Gone(id),
        })
    }
}

/// An event of a stream that concerns a server.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::baidu_std) enum ServerStreamEvent {
    Message(u64, Bytes),
    /// The peer sends no more messages and accepts none; received messages may still be consumed.
    End(u64),
    /// The stream ended.
    Gone(u64),
    Room(u64),
}

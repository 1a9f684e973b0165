//! What streams are to the server: a call offers them, and its handler may accept.

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
    /// What the calls that are not answered yet offer, by the id that the first stream of each will have here.
    offers: BTreeMap<u64, Offer>,
    /// Places that are kept for offered streams.
    offered: usize,
    /// Streams that are the answer of a method rather than beside it: when the peer is gone, so is their call.
    answers: BTreeSet<u64>,
    /// The id of the next stream.
    next: u64,
}

#[derive(Debug)]
struct Offer {
    correlation_id: i64,
    settings: StreamSettings,
}

/// What an unanswered call must remember of the streams it brought.
#[derive(Clone, Debug)]
pub(in crate::baidu_std) struct PendingOffer {
    /// The client's first stream: the response travels inside of it.
    pub(in crate::baidu_std) client: i64,
    /// The first stream here; the others follow it.
    pub(in crate::baidu_std) first: u64,
    /// How many there are; none if there is no place for them.
    pub(in crate::baidu_std) count: Option<NonZeroUsize>,
    /// The client takes messages.
    pub(in crate::baidu_std) writable: bool,
    /// What the client is told of the streams here, once they were accepted.
    pub(in crate::baidu_std) settings: Option<StreamSettings>,
}

impl PendingOffer {
    /// What is remembered of streams that are turned away unseen.
    pub(in crate::baidu_std) fn none_of(settings: &StreamSettings) -> Option<Self> {
        let (client, writable) = (settings.stream_id?, settings.writable);
        Some(Self { client, first: 0, count: None, writable, settings: None })
    }

    /// The same with nothing accepted.
    pub(in crate::baidu_std) fn declined(&self) -> Self {
        Self { settings: None, ..self.clone() }
    }
}

impl ServerStreams {
    pub(in crate::baidu_std) fn new(limits: StreamLimits, message: usize) -> Self {
        let streams = Streams::new(limits, message);
        Self { streams, offers: BTreeMap::new(), offered: 0, answers: BTreeSet::new(), next: 0 }
    }

    /// Bytes that are kept of what came, about.
    pub(in crate::baidu_std) fn held(&self) -> usize {
        self.streams.held() + self.offers.len() * size_of::<(u64, Offer)>() + self.offered * size_of::<i64>()
    }

    /// Takes note of what a call offers.
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

    /// Accepts everything that a call offers, whose response is about to be sent.
    pub(in crate::baidu_std) fn accept(
        &mut self,
        offering: &mut PendingOffer,
        options: &StreamOptions,
    ) -> Vec<u64> {
        let Some(offer) = self.withdraw(offering) else { return Vec::new() };
        let ids: Vec<u64> = (offering.first..).take(1 + offer.settings.extra_stream_ids.len()).collect();
        for (id, remote) in ids.iter().zip(Remote::all(&offer.settings)) {
            self.streams.connected(*id, options, remote);
        }
        let mut signed = ids.iter().map(|id| id.cast_signed());
        offering.settings = Some(settings(options, signed.next(), signed.collect()));
        ids
    }

    /// The response could not be sent as one that accepts.
    #[cold]
    pub(in crate::baidu_std) fn revoke(&mut self, offering: &PendingOffer) {
        let settings = offering.settings.as_ref();
        for id in settings.into_iter().flat_map(StreamSettings::ids) {
            self.streams.fail(id.cast_unsigned(), CloseReason::NotAccepted);
        }
    }

    /// Begins the answer of a method that streams, on the first of what its call offers. Returns the correlation id and
    /// what is accepted; `None` if it has begun.
    pub(in crate::baidu_std) fn start_response(&mut self, first: u64) -> Option<(i64, PendingOffer)> {
        let offer = self.offers.remove(&first)?;
        self.offered -= 1 + offer.settings.extra_stream_ids.len();
        let (client, options) = (offer.settings.stream_id?, StreamOptions::default());
        let remote = Remote::all(&offer.settings).next()?;
        self.streams.connected(first, &options, remote);
        self.answers.insert(first);
        let settings = Some(settings(&options, Some(first.cast_signed()), Vec::new()));
        let offering =
            PendingOffer { client, first, count: NonZeroUsize::new(1), writable: remote.writable, settings };
        Some((offer.correlation_id, offering))
    }

    /// Whether there is room for another message. What has not begun has.
    pub(in crate::baidu_std) fn has_room(&self, id: u64) -> bool {
        self.offers.contains_key(&id) || self.streams.has_room(id)
    }

    /// Whether the answer of a method that streams has begun.
    pub(in crate::baidu_std) fn has_begun(&self, id: u64) -> bool {
        !self.offers.contains_key(&id)
    }

    /// A call is answered without its streams.
    pub(in crate::baidu_std) fn decline(&mut self, offering: &PendingOffer) {
        self.withdraw(offering);
    }

    fn withdraw(&mut self, offering: &PendingOffer) -> Option<Offer> {
        let offer = offering.count.and_then(|_| self.offers.remove(&offering.first))?;
        self.offered -= 1 + offer.settings.extra_stream_ids.len();
        Some(offer)
    }

    /// Ends a stream of this side.
    pub(in crate::baidu_std) fn finish(&mut self, id: u64, well: bool, out: &mut Outbox) {
        self.answers.remove(&id);
        self.streams.finish(id, well, out);
    }

    /// What happened next.
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

/// What happened to a stream, as far as it concerns a server.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::baidu_std) enum ServerStreamEvent {
    Message(u64, Bytes),
    /// Nothing more comes, and nobody takes what is sent; what came may still be taken.
    End(u64),
    /// It is no more.
    Gone(u64),
    Room(u64),
}

//! A call between its start and its recording.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use polyrpc::codec::Body;
use polyrpc::layer::{Call, Outcome, Side, StreamType};
use polyrpc::service::Peer;
use polyrpc::{Context, Metadata, Protocol, Status};

use super::Recorder;
use crate::call::{self, Failure, Field, Message, Reason, unix_nanos};

/// A call that may be recorded when it has ended.
pub(super) struct Pending(Option<Box<Watched>>);

struct Watched {
    recorder: Arc<Recorder>,
    sampled: bool,
    start: Instant,
    captured: Captured,
}

/// What a recorded call consists of. It is encoded by the recorder's thread.
pub(super) struct Captured {
    arrival: SystemTime,
    side: Side,
    protocol: Protocol,
    /// Service and method, joined.
    names: Box<str>,
    split: usize,
    peer: Option<Peer>,
    target: Option<Box<str>>,
    connection: u64,
    timeout: Option<Duration>,
    request: Body,
    metadata: Metadata,
    attachment: Bytes,
    shape: StreamType,
    oneway: bool,
    queued: Duration,
    took: Duration,
    response: Option<Body>,
    failure: Option<Status>,
    response_metadata: Metadata,
    trailers: Metadata,
    response_attachment: Bytes,
    weight: f64,
    reason: Reason,
}

impl Pending {
    pub(super) fn new(
        recorder: Arc<Recorder>,
        sampled: bool,
        call: &Call,
        target: Option<(&str, Option<u16>)>,
    ) -> Self {
        let start = Instant::now();
        let context = call.context();
        let queued = context.and_then(Context::arrived).map_or(Duration::ZERO, |at| start - at);
        let target = target.map(|(host, port)| match port {
            None => host.into(),
            Some(port) => format!("{host}:{port}").into_boxed_str(),
        });
        let captured = Captured {
            arrival: SystemTime::now() - queued,
            side: call.side(),
            protocol: call.protocol(),
            names: [call.service(), call.method()].concat().into_boxed_str(),
            split: call.service().len(),
            peer: call.peer().cloned(),
            target,
            connection: context.map_or(0, Context::connection),
            timeout: call.remaining(),
            request: Body { bytes: detached(&call.body().bytes), ..call.body().clone() },
            metadata: call.metadata().clone(),
            attachment: detached(call.attachment()),
            shape: call.shape(),
            oneway: call.options().is_some_and(|options| options.oneway),
            queued,
            took: Duration::ZERO,
            response: None,
            failure: None,
            response_metadata: Metadata::new(),
            trailers: Metadata::new(),
            response_attachment: Bytes::new(),
            weight: 1.0,
            reason: Reason::Sampled,
        };
        Self(Some(Box::new(Watched { recorder, sampled, start, captured })))
    }

    /// Records the call if it is to be recorded.
    pub(super) fn finish(mut self, outcome: &mut Outcome) {
        let Some(watched) = self.0.take() else { return };
        watched.record(outcome.failure().cloned(), Some(outcome));
    }
}

/// A call that was dropped before it ended.
impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(watched) = self.0.take() {
            let status = match std::thread::panicking() {
                true => Status::internal("it panicked"),
                false => Status::cancelled("it was cancelled"),
            };
            watched.record(Some(status), None);
        }
    }
}

impl Watched {
    fn record(self: Box<Self>, failure: Option<Status>, outcome: Option<&mut Outcome>) {
        let Self { recorder, sampled, start, mut captured } = *self;
        let shared = &*recorder.0;
        captured.took = start.elapsed();
        let is_slow = shared.slow.is_some_and(|slow| captured.took >= slow);
        (captured.reason, captured.weight) = match () {
            () if shared.failures && failure.is_some() => (Reason::Failed, 1.0),
            () if is_slow => (Reason::Slow, 1.0),
            () if sampled => (Reason::Sampled, shared.sampler.weight()),
            () => return,
        };
        if let Some(limit) = &shared.limit
            && !limit.allows(&captured.names, captured.split, start)
        {
            shared.queue.count_limited();
            return;
        }
        captured.failure = failure;
        if let Some(outcome) = outcome {
            captured.response = outcome.body().map(|body| Body { bytes: detached(&body.bytes), ..body });
            captured.response_attachment = outcome.attachment().map(detached).unwrap_or_default();
            captured.response_metadata = outcome.metadata_mut().cloned().unwrap_or_default();
            captured.trailers = outcome.trailers_mut().cloned().unwrap_or_default();
        }
        shared.queue.push(captured);
    }
}

/// Returns the bytes without the buffer that they are a part of, if they are few: it may be much larger.
fn detached(bytes: &Bytes) -> Bytes {
    match bytes.len() {
        0 => Bytes::new(),
        1..=SMALL => Bytes::copy_from_slice(bytes),
        _ => bytes.clone(),
    }
}

const SMALL: usize = 4096;

impl Captured {
    /// Returns the memory that the call takes while it waits, about.
    pub(super) fn footprint(&self) -> usize {
        let metadata = [&self.metadata, &self.response_metadata, &self.trailers];
        size_of::<Self>()
            + self.names.len()
            + self.request.bytes.len()
            + self.attachment.len()
            + self.response.as_ref().map_or(0, |body| body.bytes.len())
            + self.response_attachment.len()
            + metadata.iter().map(|metadata| metadata.footprint()).sum::<usize>()
    }

    /// Returns the call as it is recorded.
    pub(super) fn into_call(self) -> call::Call {
        let (service, method) = self.names.split_at_checked(self.split).unwrap_or_default();
        let is_streamed_response = self.shape.server_streams;
        let is_closed = self.response.is_none()
            && self.failure.is_none()
            && !self.oneway
            && !is_streamed_response
            && !self.shape.client_streams;
        call::Call {
            arrival: unix_nanos(self.arrival),
            side: match self.side {
                Side::Client => call::Side::Client,
                Side::Server => call::Side::Server,
            },
            protocol: self.protocol.as_str().to_owned(),
            service: service.to_owned(),
            method: method.to_owned(),
            peer: match (self.peer, self.target) {
                (Some(peer), _) => peer.to_string(),
                (None, target) => target.map(String::from).unwrap_or_default(),
            },
            connection: self.connection,
            timeout: self.timeout,
            request: (!self.shape.client_streams).then(|| message(self.request)),
            metadata: Field::list(&self.metadata),
            attachment: self.attachment,
            oneway: self.oneway,
            client_streams: self.shape.client_streams,
            server_streams: is_streamed_response,
            queued: self.queued,
            took: self.took,
            outcome: Some(call::Outcome {
                response: self.response.map(message),
                failure: self.failure.as_ref().map(Failure::from),
                metadata: Field::list(&self.response_metadata),
                trailers: Field::list(&self.trailers),
                attachment: self.response_attachment,
                closed: is_closed,
            }),
            events: Vec::new(),
            weight: self.weight,
            reason: self.reason,
            schema: None,
        }
    }
}

fn message(body: Body) -> Message {
    Message { positional: body.positional, ..Message::new(body.format, body.bytes) }
}

//! A call between its start and its recording.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::layer::{Call, Outcome, Side, StreamType};
use polyrpc::service::Peer;
use polyrpc::{Context, Format, Metadata, Protocol, Status};

use super::Recorder;
use crate::call::{self, Failure, Field, Message, Reason, StreamEvent, unix_nanos};

/// A call that may be recorded when it has ended.
pub(super) struct Pending(Option<Box<PendingCall>>);

struct PendingCall {
    recorder: Recorder,
    sampled: bool,
    start: Instant,
    captured: CapturedCall,
}

/// The parts of a recorded call. The recorder's thread encodes them.
pub(super) struct CapturedCall {
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
    stream_type: StreamType,
    /// Messages of a stream, if the recorder sees them.
    messages: Option<Box<StreamMessages>>,
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

/// The first messages of a stream, in both directions.
struct StreamMessages {
    /// Of the call. Whether the call is unary is only known at its end.
    format: Option<Format>,
    events: Vec<StreamEvent>,
    bytes: usize,
    omitted: u64,
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
        let captured = CapturedCall {
            arrival: SystemTime::now() - queued,
            side: call.side(),
            protocol: call.protocol(),
            names: [call.service(), call.method()].concat().into_boxed_str(),
            split: call.service().len(),
            peer: call.peer().cloned(),
            target,
            connection: context.map_or(0, Context::connection_id),
            timeout: call.remaining(),
            request: Body { bytes: detach(&call.body().bytes), ..call.body().clone() },
            metadata: call.metadata().clone(),
            attachment: detach(call.attachment()),
            stream_type: call.stream_type(),
            messages: None,
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
        Self(Some(Box::new(PendingCall { recorder: (*recorder).clone(), sampled, start, captured })))
    }

    /// A call that its handler completes. See [`Recorder::begin`].
    pub(super) fn from_request(
        recorder: &Recorder,
        sampled: bool,
        call: &RawRequest,
        (service, method): (&str, &str),
        shape: Option<StreamType>,
        request: Option<&Body>,
    ) -> Self {
        let (start, context) = (Instant::now(), call.context());
        let queued = context.arrived().map_or(Duration::ZERO, |at| start.saturating_duration_since(at));
        let shape_at_first = shape.unwrap_or(StreamType::BIDI);
        let messages = (!shape_at_first.is_unary()).then(|| {
            let format = shape.is_none().then(|| call.format());
            Box::new(StreamMessages { format, events: Vec::new(), bytes: 0, omitted: 0 })
        });
        let request = match request {
            Some(body) => Body { bytes: detach(&body.bytes), ..body.clone() },
            None => Body::new(call.format(), Bytes::new()),
        };
        let captured = CapturedCall {
            arrival: SystemTime::now() - queued,
            side: Side::Server,
            protocol: call.protocol(),
            names: [service, method].concat().into_boxed_str(),
            split: service.len(),
            peer: Some(context.peer().clone()),
            target: None,
            connection: context.connection_id(),
            timeout: call.remaining(),
            request,
            metadata: call.metadata().clone(),
            attachment: detach(call.attachment()),
            stream_type: shape_at_first,
            messages,
            oneway: call.is_oneway(),
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
        Self(Some(Box::new(PendingCall { recorder: recorder.clone(), sampled, start, captured })))
    }

    /// Adds a message of a stream.
    pub(super) fn message(&mut self, message: &Bytes, from_server: bool) {
        let Some(pending) = &mut self.0 else { return };
        let Some(messages) = &mut pending.captured.messages else { return };
        messages.add(pending.start.elapsed() + pending.captured.queued, message, from_server);
    }

    /// Records the call if it is selected.
    pub(super) fn finish(mut self, outcome: &mut Outcome) {
        let Some(pending) = self.0.take() else { return };
        pending.record(outcome.failure().cloned(), |captured| {
            captured.response = outcome.body().map(|body| Body { bytes: detach(&body.bytes), ..body });
            captured.response_attachment = outcome.attachment().map(detach).unwrap_or_default();
            captured.response_metadata = outcome.metadata_mut().cloned().unwrap_or_default();
            captured.trailers = outcome.trailers_mut().cloned().unwrap_or_default();
        });
    }

    /// Records a call with one message each way.
    pub(super) fn record_answer(mut self, message: Body, response: &RawResponse) {
        let Some(pending) = self.0.take() else { return };
        pending.record(None, |captured| {
            captured.response = Some(Body { bytes: detach(&message.bytes), ..message });
            captured.response_attachment = detach(&response.attachment);
            captured.response_metadata = response.metadata.clone();
            captured.trailers = response.trailers.clone();
        });
    }

    /// Records a call without a response message of its own.
    pub(super) fn record_end(mut self, result: Result<(), &Status>) {
        let Some(pending) = self.0.take() else { return };
        pending.record(result.err().cloned(), |_| {});
    }
}

impl StreamMessages {
    fn add(&mut self, at: Duration, message: &Bytes, from_server: bool) {
        if self.events.len() >= MAX_MESSAGES || self.bytes.saturating_add(message.len()) > MAX_BYTES {
            self.omitted += 1;
            return;
        }
        self.bytes += message.len();
        self.events.push(StreamEvent { at, from_server, message: detach(message), end: false });
    }

    fn footprint(&self) -> usize {
        self.bytes + self.events.capacity() * size_of::<StreamEvent>()
    }
}

/// Of a stream that are kept.
const MAX_MESSAGES: usize = 1000;
const MAX_BYTES: usize = 1 << 20;

/// A call that was dropped before it ended.
impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(pending) = self.0.take() {
            let status = match std::thread::panicking() {
                true => Status::internal("it panicked"),
                false => Status::cancelled("it was cancelled"),
            };
            pending.record(Some(status), |_| {});
        }
    }
}

impl PendingCall {
    /// `fill` adds the known parts of the response.
    fn record(self: Box<Self>, failure: Option<Status>, fill: impl FnOnce(&mut CapturedCall)) {
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
        fill(&mut captured);
        captured.infer_stream_type();
        shared.queue.push(captured);
    }
}

/// Copies bytes out of their buffer if they are few: the buffer may be much larger.
fn detach(bytes: &Bytes) -> Bytes {
    match bytes.len() {
        0 => Bytes::new(),
        1..=MAX_COPIED => Bytes::copy_from_slice(bytes),
        _ => bytes.clone(),
    }
}

const MAX_COPIED: usize = 4096;

impl CapturedCall {
    /// Returns the approximate memory of the waiting call.
    pub(super) fn footprint(&self) -> usize {
        let metadata = [&self.metadata, &self.response_metadata, &self.trailers];
        size_of::<Self>()
            + self.names.len()
            + self.request.bytes.len()
            + self.attachment.len()
            + self.response.as_ref().map_or(0, |body| body.bytes.len())
            + self.response_attachment.len()
            + self.messages.as_ref().map_or(0, |messages| messages.footprint())
            + metadata.iter().map(|metadata| metadata.footprint()).sum::<usize>()
    }

    /// Marks an undeclared call as unary if it had one message each way, or failed after one request.
    fn infer_stream_type(&mut self) {
        let Some(StreamMessages { format: Some(format), events, omitted: 0, .. }) =
            self.messages.as_deref_mut()
        else {
            return;
        };
        let (format, has_failed) = (*format, self.failure.is_some());
        let (request, response) = match events.as_mut_slice() {
            [request] if !request.from_server && has_failed => (request, None),
            [request, response] if !request.from_server && response.from_server && !has_failed => {
                (request, Some(response))
            }
            _ => return,
        };
        self.request = Body::new(format, std::mem::take(&mut request.message));
        self.response = response.map(|response| Body::new(format, std::mem::take(&mut response.message)));
        self.stream_type = StreamType::UNARY;
        self.messages = None;
    }

    /// Returns the call in recorded form.
    pub(super) fn into_call(self) -> call::Call {
        let (service, method) = self.names.split_at_checked(self.split).unwrap_or_default();
        let is_streamed_response = self.stream_type.server_streaming;
        let is_closed = self.response.is_none()
            && self.failure.is_none()
            && !self.oneway
            && !is_streamed_response
            && !self.stream_type.client_streaming;
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
            request: (!self.stream_type.client_streaming).then(|| message(self.request)),
            metadata: Field::list(&self.metadata),
            attachment: self.attachment,
            oneway: self.oneway,
            client_streams: self.stream_type.client_streaming,
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
            events_left_out: self.messages.as_ref().map_or(0, |messages| messages.omitted),
            events: self.messages.map_or_else(Vec::new, |messages| messages.events),
            weight: self.weight,
            reason: self.reason,
            schema: None,
        }
    }
}

fn message(body: Body) -> Message {
    Message { positional: body.positional, ..Message::new(body.format, body.bytes) }
}

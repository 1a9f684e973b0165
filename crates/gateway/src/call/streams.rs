//! Streaming calls.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use polyrpc::client::{RawCall, RawReceiver, RawSender};
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse, StreamTranslation, forward_stream};
use polyrpc::layer::StreamType;
use polyrpc::service::Trailers;
use polyrpc::streaming::{Sender, StreamOptions};
use polyrpc::{Failure, Result, Streaming};
use polyrpc_core::protocol::Streams;
use polyrpc_record::layer::OpenCall;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::decision::Decision;
use super::watch::{AttachedWatch, Watch};
use super::{metadata, refusal, unary};

/// Joins the streams of a caller and an upstream that both have streams of messages (gRPC).
pub(super) async fn pipe(decision: Box<Decision>, mut call: RawRequest) -> Result<RawResponse> {
    let messages = match decision.pair.stream_type {
        // Admitted once its only request is complete.
        Some(shape) if !shape.client_streaming => Streaming::once(call.body().await?.bytes),
        _ => call.messages(),
    };
    let mut decision = decision.admit()?;
    let record = decision.begin_record(&call, decision.pair.stream_type, None);
    let watch = Watch::new(&mut decision, record.clone());
    let upstream = open(&decision).await.map_err(|failure| watch.record_failure(failure))?;
    watch.observe(join(decision, record, messages, upstream).await)
}

async fn open(decision: &Decision) -> Result<RawCall> {
    let Decision { target, options, to, .. } = decision;
    let opened = decision.upstream().client().open_raw(target, options.clone(), *to).await;
    opened.map_err(|error| decision.failure(error))
}

/// Calls a streaming method of a brpc upstream, whose messages travel on an attached stream.
pub(super) async fn forward_attached(
    decision: Box<Decision>,
    shape: StreamType,
    mut call: RawRequest,
) -> Result<RawResponse> {
    if shape.client_streaming {
        return pipe(decision, call).await;
    }
    // The only request is sent with the call, which is answered before the stream continues.
    let body = call.body().await?;
    let mut decision = decision.admit()?;
    let record = decision.begin_record(&call, Some(shape), Some(&body));
    let watch = Watch::new(&mut decision, record.clone());
    let body = unary::request(&decision, body).await.map_err(|failure| watch.record_failure(failure))?;
    let (client, options) = (decision.upstream().client(), decision.options.clone());
    let opened = client.open_stream_raw(&decision.target, body, options, StreamOptions::default()).await;
    let (_, upstream) = opened.map_err(|error| watch.record_failure(decision.failure(error)))?;
    watch.observe(join(decision, record, Streaming::empty(), upstream).await)
}

/// `record` gets all messages, as the caller sends and receives them.
async fn join(
    decision: Box<Decision>,
    record: Option<OpenCall>,
    requests: Streaming<Bytes>,
    upstream: RawCall,
) -> Result<RawResponse> {
    if decision.pair.is_identity() && record.is_none() {
        let format = Some(decision.from);
        let mut answer = RawResponse::relay_with(requests, upstream, move |error| decision.failure(error));
        answer.format = format;
        return Ok(answer);
    }
    let (sender, mut receiver) = upstream.split();
    let decision: Arc<Decision> = decision.into();
    let (failed, mut failure) = mpsc::channel(1);
    let sending = tokio::spawn({
        let (decision, record) = (decision.clone(), record.clone());
        async move {
            if let Err(error) = send(&decision, record, requests, sender).await {
                // If the response has ended, the reason is not needed.
                let _ = failed.send(error).await;
            }
        }
    });
    let sending = AbortOnDrop(sending.abort_handle());
    let metadata = tokio::select! {
        biased;
        Some(error) = failure.recv() => return Err(error),
        metadata = receiver.metadata() => metadata.cloned(),
    };
    let mut metadata = metadata.map_err(|error| decision.failure(error))?;
    let [caller, from] = decision.protocols();
    metadata::convert_response(from, caller, &mut metadata)?;
    let format = Some(decision.from);
    let trailers = Arc::new(OnceLock::<Trailers>::new());
    let late = trailers.clone();
    let state = Some((decision, receiver, failure, sending));
    let messages = futures_util::stream::unfold(state, move |state| {
        let (late, record) = (late.clone(), record.clone());
        async move {
            let (decision, mut receiver, mut failure, sending) = state?;
            let next = tokio::select! {
                biased;
                Some(error) = failure.recv() => return Some((Err(error), None)),
                next = receiver.next() => next,
            };
            match next {
                Ok(None) => {
                    let mut last = receiver.trailers().clone();
                    let [caller, from] = decision.protocols();
                    if let Err(failure) = metadata::convert_response(from, caller, &mut last) {
                        return Some((Err(failure), None));
                    }
                    if let Some(trailers) = late.get() {
                        last.iter().for_each(|(key, value)| trailers.append(key.to_owned(), value.clone()));
                    }
                    None
                }
                Ok(Some(body)) => match unary::response_message(&decision, body).await {
                    Ok(body) => {
                        if let Some(record) = record {
                            record.response(&body.bytes);
                        }
                        Some((Ok(body.bytes), Some((decision, receiver, failure, sending))))
                    }
                    Err(error) => Some((Err(error), None)),
                },
                Err(error) => Some((Err(decision.failure(error)), None)),
            }
        }
    });
    let mut answer = RawResponse::messages(Streaming::from_stream(messages));
    let _ = trailers.set(answer.late_trailers());
    (answer.metadata, answer.format) = (metadata, format);
    Ok(answer)
}

async fn send(
    decision: &Decision,
    record: Option<OpenCall>,
    mut requests: Streaming<Bytes>,
    mut sender: RawSender,
) -> Result<(), Failure> {
    while let Some(bytes) = requests.message().await? {
        if let Some(record) = &record {
            record.request(&bytes);
        }
        let body = unary::request(decision, Body::new(decision.from, bytes)).await?;
        if sender.send(body.bytes).await.is_err() {
            // The call has ended; the receiving half has the reason.
            return Ok(());
        }
    }
    let _ = sender.finish().await;
    Ok(())
}

/// Ends the task that sends requests together with the response.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects the streams that a brpc caller attaches to its call with those of a brpc upstream.
pub(super) async fn join_attached(mut decision: Box<Decision>, mut call: RawRequest) -> Result<RawResponse> {
    let client = decision.upstream().client().clone();
    if client.protocol().descriptor().capabilities.streams != Streams::Attached {
        return Err(refusal::attached_streams(client.protocol()));
    }
    let offered = call.offered_streams();
    let body = call.body().await?;
    let record = decision.begin_record(&call, Some(StreamType::BIDI), Some(&body));
    let (options, watch) = (StreamOptions::default(), Watch::new(&mut decision, record.clone()));
    let body = unary::request(&decision, body).await.map_err(|failure| watch.record_failure(failure))?;
    let opened = client
        .open_streams_raw(&decision.target, body, decision.options.clone(), options.clone(), offered)
        .await;
    let (response, calls) = opened.map_err(|error| watch.record_failure(decision.failure(error)))?;
    let answer = unary::translate(&decision, response).await;
    let answer = answer.map_err(|failure| watch.record_failure(failure))?;
    let streams: Vec<_> = call.accept_streams(options)?.into_iter().zip(calls).collect();
    let (decision, watch) = (Arc::<Decision>::from(decision), Arc::new(watch.into_attached(streams.len())));
    for (stream, call) in streams {
        let forwarded =
            StreamForwarder { decision: decision.clone(), is_unread: true, record: record.clone() };
        let (onward, back) = call.split();
        tokio::spawn(forward(forwarded, watch.clone(), stream, (Some(onward), back)));
    }
    Ok(answer.response)
}

/// Calls a streaming method over the stream that a brpc caller attaches to its call. The call's own message is the
/// first request, if it has one, or if the method takes only one. A failure ends the caller's stream; brpc's streams
/// carry no status.
pub(super) async fn from_attached(
    mut decision: Box<Decision>,
    shape: StreamType,
    mut call: RawRequest,
) -> Result<RawResponse> {
    // The caller's end of the stream ends both directions, so that no response could follow the last request.
    if call.offered_streams() != 1 || !shape.server_streaming {
        return Err(refusal::attached_streams(decision.upstream().protocol()));
    }
    if shape.client_streaming && decision.upstream().is_half_duplex() {
        return Err(refusal::half_duplex(&decision.target));
    }
    let first = call.body().await?;
    let record = decision.begin_record(&call, Some(shape), Some(&first));
    let watch = Watch::new(&mut decision, record.clone());
    let first = match first.bytes.is_empty() && shape.client_streaming {
        true => None,
        false => {
            let first = unary::request(&decision, first).await;
            Some(first.map_err(|failure| watch.record_failure(failure))?.bytes)
        }
    };
    let upstream = open(&decision).await.map_err(|failure| watch.record_failure(failure))?;
    let (mut onward, back) = upstream.split();
    if let Some(first) = first {
        // If the call has ended, its receiving half has the reason.
        let _ = onward.send(first).await;
    }
    let format = decision.from;
    let onward = if shape.client_streaming { Some(onward) } else { finish(onward).await };
    if let Some(stream) = call.accept_streams(StreamOptions::default())?.pop() {
        let forwarded = StreamForwarder { decision: decision.into(), is_unread: false, record };
        tokio::spawn(forward(forwarded, Arc::new(watch.into_attached(1)), stream, (onward, back)));
    }
    let mut answer = RawResponse::message(Bytes::new());
    answer.format = Some(format);
    Ok(answer)
}

/// Ends the requests of a call.
async fn finish(onward: RawSender) -> Option<RawSender> {
    let _ = onward.finish().await;
    None
}

/// Forwards an attached stream and counts its outcome. The caller only sees that it ended; a failure is logged.
async fn forward(
    forwarded: StreamForwarder,
    watch: Arc<AttachedWatch>,
    stream: (Streaming<Bytes>, Sender<Bytes>),
    call: (Option<RawSender>, RawReceiver),
) {
    let decision = forwarded.decision.clone();
    let ended = forward_stream(stream, call, forwarded).await;
    watch.on_stream_end(&decision.target, &ended);
}

/// Forwards the messages of an attached stream.
struct StreamForwarder {
    decision: Arc<Decision>,
    /// Whether messages are forwarded without decoding: the upstream has an attached stream too, and their types are
    /// not declared.
    is_unread: bool,
    /// Records all messages, as the caller sends and receives them.
    record: Option<OpenCall>,
}

impl StreamTranslation for StreamForwarder {
    fn request(&self, bytes: Bytes) -> Result<Bytes> {
        if let Some(record) = &self.record {
            record.request(&bytes);
        }
        match self.is_unread {
            true => Ok(bytes),
            false => Ok(unary::request_in_place(&self.decision, Body::new(self.decision.from, bytes))?.bytes),
        }
    }

    fn response(&self, body: Body) -> Result<Bytes> {
        let bytes = match self.is_unread {
            true => body.bytes,
            false => unary::response_in_place(&self.decision, body)?.bytes,
        };
        if let Some(record) = &self.record {
            record.response(&bytes);
        }
        Ok(bytes)
    }

    fn failure(&self, error: polyrpc::Error) -> Failure {
        self.decision.failure(error)
    }
}

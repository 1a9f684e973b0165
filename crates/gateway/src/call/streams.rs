//! Calls of several messages.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use polyrpc::client::{RawCall, RawReceiver, RawSender};
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::layer::StreamType;
use polyrpc::service::Trailers;
use polyrpc::streaming::{Sender, StreamOptions};
use polyrpc::{Failure, Result, Streaming};
use polyrpc_core::protocol::Streams;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::decision::Decision;
use super::metadata::keep_end_to_end;
use super::watch::{End, Watch};
use super::{refusal, unary};

/// Joins the streams of a caller and an upstream that both have streams of messages (gRPC).
pub(super) async fn piped(decision: Decision, mut call: RawRequest) -> Result<RawResponse> {
    let watch = Watch::of(&decision);
    let upstream = open(&decision).await.map_err(|failure| watch.failed(failure))?;
    watch.watched(join(decision, call.messages(), upstream).await)
}

async fn open(decision: &Decision) -> Result<RawCall> {
    let Decision { target, options, to, .. } = decision;
    let opened = decision.upstream().client().open_raw(target, options.clone(), *to).await;
    opened.map_err(|error| decision.failure(error))
}

/// Calls a streaming method of brpc, whose messages travel on an attached stream.
pub(super) async fn over_attached(
    decision: Decision,
    shape: StreamType,
    mut call: RawRequest,
) -> Result<RawResponse> {
    if shape.client_streams {
        return piped(decision, call).await;
    }
    // The only request is sent with the call, which is answered before the stream continues.
    let body = unary::request(&decision, call.body().await?)?;
    let (client, options) = (decision.upstream().client(), decision.options.clone());
    let watch = Watch::of(&decision);
    let opened = client.open_stream_raw(&decision.target, body, options, StreamOptions::default()).await;
    let (_, upstream) = opened.map_err(|error| watch.failed(decision.failure(error)))?;
    watch.watched(join(decision, Streaming::empty(), upstream).await)
}

async fn join(decision: Decision, requests: Streaming<Bytes>, upstream: RawCall) -> Result<RawResponse> {
    if decision.pair.is_identity() {
        let mut answer = RawResponse::relay(requests, upstream);
        answer.format = Some(decision.from);
        return Ok(answer);
    }
    let (sender, mut receiver) = upstream.split();
    let decision = Arc::new(decision);
    let (failed, mut failure) = mpsc::channel(1);
    let sending = tokio::spawn({
        let decision = decision.clone();
        async move {
            if let Err(error) = send(&decision, requests, sender).await {
                // If the response has ended, nobody needs the reason.
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
    keep_end_to_end(&mut metadata);
    let format = Some(decision.from);
    let trailers = Arc::new(OnceLock::<Trailers>::new());
    let late = trailers.clone();
    let state = Some((decision, receiver, failure, sending));
    let messages = futures_util::stream::unfold(state, move |state| {
        let late = late.clone();
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
                    keep_end_to_end(&mut last);
                    if let Some(trailers) = late.get() {
                        last.iter().for_each(|(key, value)| trailers.append(key.to_owned(), value.clone()));
                    }
                    None
                }
                Ok(Some(body)) => match unary::response_message(&decision, body) {
                    Ok(body) => Some((Ok(body.bytes), Some((decision, receiver, failure, sending)))),
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
    mut requests: Streaming<Bytes>,
    mut sender: RawSender,
) -> Result<(), Failure> {
    while let Some(bytes) = requests.message().await? {
        let body = unary::request(decision, Body::new(decision.from, bytes))?;
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

/// Joins the streams that a brpc caller offers to attach to its call with those of a brpc upstream.
pub(super) async fn attached(decision: Decision, mut call: RawRequest) -> Result<RawResponse> {
    let client = decision.upstream().client().clone();
    if client.protocol().descriptor().capabilities.streams != Streams::Attached {
        return Err(refusal::attached_streams(client.protocol()));
    }
    let offered = call.offered_streams();
    let body = unary::request(&decision, call.body().await?)?;
    let (options, watch) = (StreamOptions::default(), Watch::of(&decision));
    let opened = client
        .open_streams_raw(&decision.target, body, decision.options.clone(), options.clone(), offered)
        .await;
    let (response, calls) = opened.map_err(|error| watch.failed(decision.failure(error)))?;
    // The streams keep the call's places in the route and the upstream.
    let decision = Arc::new(decision);
    for ((messages, sender), call) in call.accept_streams(options)?.into_iter().zip(calls) {
        tokio::spawn(carry(decision.clone(), watch.clone(), (messages, sender), call));
    }
    Ok(response.into())
}

/// Calls a streaming method by the stream that a brpc caller attaches to its call. The call's own message is the first
/// request, if there is one or the method takes no more. The caller learns of a failure by the end of the stream, which has
/// no status in brpc.
pub(super) async fn from_attached(
    decision: Decision,
    shape: StreamType,
    mut call: RawRequest,
) -> Result<RawResponse> {
    // The caller's end of the stream ends both directions, so that no response could follow the last request.
    if call.offered_streams() != 1 || !shape.server_streams {
        return Err(refusal::attached_streams(decision.upstream().protocol()));
    }
    if shape.client_streams && decision.upstream().is_half_duplex() {
        return Err(refusal::half_duplex(&decision.target));
    }
    let first = call.body().await?;
    let first = match first.bytes.is_empty() && shape.client_streams {
        true => None,
        false => Some(unary::request(&decision, first)?.bytes),
    };
    let watch = Watch::of(&decision);
    let upstream = open(&decision).await.map_err(|failure| watch.failed(failure))?;
    let (mut onward, back) = upstream.split();
    if let Some(first) = first {
        // If the call has ended, its receiving half has the reason.
        let _ = onward.send(first).await;
    }
    let format = decision.from;
    let onward = if shape.client_streams { Some(onward) } else { finished(onward).await };
    if let Some((messages, sender)) = call.accept_streams(StreamOptions::default())?.pop() {
        tokio::spawn(exchange(decision, watch, (messages, sender), onward, back));
    }
    let mut answer = RawResponse::message(Bytes::new());
    answer.format = Some(format);
    Ok(answer)
}

/// Ends the requests of a call.
async fn finished(onward: RawSender) -> Option<RawSender> {
    let _ = onward.finish().await;
    None
}

/// Carries requests from an attached stream to a call, and responses back, until one side ends. The caller only learns
/// that the stream ended; a failure is logged and counted.
async fn exchange(
    decision: Decision,
    watch: Watch,
    (mut messages, sender): (Streaming<Bytes>, Sender<Bytes>),
    mut onward: Option<RawSender>,
    mut back: RawReceiver,
) {
    let there = async {
        while let Ok(Some(bytes)) = messages.message().await {
            let Some(onward) = &mut onward else { continue };
            let body = unary::request(&decision, Body::new(decision.from, bytes))?;
            if onward.send(body.bytes).await.is_err() {
                // The receiving half has the reason.
                return Ok(End::OfUpstream);
            }
        }
        Ok(End::OfCaller)
    };
    let here = async {
        while let Some(body) = back.next().await.map_err(|error| decision.failure(error))? {
            let body = unary::response_message(&decision, body)?;
            if sender.send(body.bytes).await.is_err() {
                return Ok(End::OfCaller);
            }
        }
        Ok(End::OfUpstream)
    };
    // The end of either is the end of the call: what is left is dropped, which cancels it.
    let mut ended: Result<End> = tokio::select! {
        ended = there => ended,
        ended = here => ended,
    };
    if matches!(ended, Ok(End::OfUpstream)) {
        let rest = back.next().await;
        ended = rest.map(|_| End::OfUpstream).map_err(|error| decision.failure(error));
    }
    let _ = sender.close().await;
    watch.ended_attached(&decision.target, &ended);
}

/// Forwards an attached stream until one side ends it: both directions end together.
async fn carry(
    decision: Arc<Decision>,
    watch: Watch,
    (mut messages, sender): (Streaming<Bytes>, Sender<Bytes>),
    call: RawCall,
) {
    let (mut onward, mut back) = call.split();
    let there = async {
        while let Ok(Some(message)) = messages.message().await {
            if onward.send(message).await.is_err() {
                break;
            }
        }
    };
    let here = async {
        while let Some(Body { bytes, .. }) = back.next().await? {
            if sender.send(bytes).await.is_err() {
                return Ok(End::OfCaller);
            }
        }
        Ok(End::OfUpstream)
    };
    let ended: Result<End, polyrpc::Error> = tokio::select! {
        () = there => Ok(End::OfCaller),
        ended = here => ended,
    };
    if matches!(ended, Ok(End::OfCaller)) {
        let _ = onward.close().await;
        while let Ok(Some(_)) = back.next().await {}
    } else {
        let _ = sender.close().await;
    }
    watch.ended_attached(&decision.target, &ended.map_err(|error| decision.failure(error)));
}

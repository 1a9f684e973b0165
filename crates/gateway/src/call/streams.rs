//! Calls of several messages.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::FutureExt;
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
use super::watch::{AttachedWatch, End, Watch};
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
    let streams: Vec<_> = call.accept_streams(options)?.into_iter().zip(calls).collect();
    // The streams keep the call's places in the route and the upstream.
    let (decision, watch) = (Arc::new(decision), Arc::new(watch.attached(streams.len())));
    for (stream, call) in streams {
        tokio::spawn(carry(decision.clone(), watch.clone(), stream, call));
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
        tokio::spawn(exchange(decision, watch.attached(1), (messages, sender), onward, back));
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
    watch: AttachedWatch,
    (mut messages, sender): (Streaming<Bytes>, Sender<Bytes>),
    mut onward: Option<RawSender>,
    mut back: RawReceiver,
) {
    let there = requests(&mut messages, onward.as_mut(), |bytes| {
        unary::request(&decision, Body::new(decision.from, bytes)).map(|body| body.bytes)
    });
    let here = responses(&decision, &mut back, &sender, |body| {
        unary::response_message(&decision, body).map(|body| body.bytes)
    });
    let ended = first_end(there, here).await;
    let ended = ended.map(|end| end.unwrap_or_else(|| end_of_caller(&mut messages)));
    let _ = sender.close().await;
    // The end of either is the end of the call: what is left is dropped, which cancels it.
    watch.ended(&decision.target, &ended);
}

/// Forwards an attached stream until one side ends it: both directions end together.
async fn carry(
    decision: Arc<Decision>,
    watch: Arc<AttachedWatch>,
    (mut messages, sender): (Streaming<Bytes>, Sender<Bytes>),
    call: RawCall,
) {
    let (mut onward, mut back) = call.split();
    let there = requests(&mut messages, Some(&mut onward), Ok);
    let here = responses(&decision, &mut back, &sender, |body| Ok(body.bytes));
    let ended = first_end(there, here).await;
    let mut ended = ended.map(|end| end.unwrap_or_else(|| end_of_caller(&mut messages)));
    match ended {
        Ok(End::OfCaller) => {
            // If the call has ended, its receiving half has the reason.
            let _ = onward.close().await;
            ended = closed(&mut back).await.map_err(|error| decision.failure(error));
        }
        // Dropping both halves cancels the call.
        Ok(End::GivenUp) => {}
        Ok(End::OfUpstream) | Err(_) => {
            let _ = sender.close().await;
        }
    }
    watch.ended(&decision.target, &ended);
}

/// Waits for the upstream's confirmation that a stream is closed. What it still has sent is discarded, as brpc does.
async fn closed(back: &mut RawReceiver) -> Result<End, polyrpc::Error> {
    while back.next().await?.is_some() {}
    Ok(End::OfCaller)
}

/// Waits for the end of the requests or of the responses. Returns `None` if the caller takes no more responses, so that
/// only its requests tell how it ended.
async fn first_end(
    requests: impl Future<Output = Result<Option<End>>>,
    responses: impl Future<Output = Result<Option<End>>>,
) -> Result<Option<End>> {
    let mut responses = pin!(responses);
    tokio::select! {
        ended = requests => match ended? {
            Some(end) => return Ok(Some(end)),
            // The responses end with the reason.
            None => {}
        },
        ended = &mut responses => return ended,
    }
    responses.await
}

/// Forwards the requests of an attached stream; without a sender they are discarded. Returns `None` if the call takes no
/// more of them.
async fn requests(
    messages: &mut Streaming<Bytes>,
    mut onward: Option<&mut RawSender>,
    translate: impl Fn(Bytes) -> Result<Bytes>,
) -> Result<Option<End>> {
    loop {
        let bytes = match messages.message().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Some(End::OfCaller)),
            // Its connection was lost, or it has reset the stream.
            Err(_) => return Ok(Some(End::GivenUp)),
        };
        if let Some(onward) = &mut onward
            && onward.send(translate(bytes)?).await.is_err()
        {
            return Ok(None);
        }
    }
}

/// Forwards the responses of a call to an attached stream. Returns `None` if the caller takes no more of them.
async fn responses(
    decision: &Decision,
    back: &mut RawReceiver,
    sender: &Sender<Bytes>,
    translate: impl Fn(Body) -> Result<Bytes>,
) -> Result<Option<End>> {
    while let Some(body) = back.next().await.map_err(|error| decision.failure(error))? {
        if sender.send(translate(body)?).await.is_err() {
            return Ok(None);
        }
    }
    Ok(Some(End::OfUpstream))
}

/// How a caller ended its stream, of which it takes no more responses: its end is behind the requests that it had sent.
fn end_of_caller(messages: &mut Streaming<Bytes>) -> End {
    loop {
        match messages.message().now_or_never() {
            Some(Ok(Some(_))) => {}
            Some(Ok(None)) => return End::OfCaller,
            Some(Err(_)) | None => return End::GivenUp,
        }
    }
}

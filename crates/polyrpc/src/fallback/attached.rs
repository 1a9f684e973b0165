use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::time::{sleep, timeout};

use crate::call::streaming::{Incoming, Sender, Streaming};
use crate::client::{RawReceiver, RawSender};
use crate::codec::Body;
use crate::{Error, Failure, Result};

/// How a [forwarded](forward_stream) stream ended without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The caller closed it.
    ByCaller,
    /// The caller disconnected, or accepts no more responses.
    CallerGone,
    /// The server closed it.
    ByServer,
}

/// Translates the messages of a [forwarded](forward_stream) stream. By default they are forwarded unchanged.
pub trait StreamTranslation: Send + Sync {
    /// Translates a request for the server.
    ///
    /// # Errors
    ///
    /// The failure that ends the stream.
    fn request(&self, message: Bytes) -> Result<Bytes> {
        Ok(message)
    }

    /// Translates a response for the caller.
    ///
    /// # Errors
    ///
    /// The failure that ends the stream.
    fn response(&self, message: Body) -> Result<Bytes> {
        Ok(message.bytes)
    }

    /// Translates the failure of a call.
    fn failure(&self, error: Error) -> Failure {
        error.into()
    }
}

/// Forwards messages unchanged.
impl StreamTranslation for () {}

/// Forwards a stream that a caller has attached to its call (brpc) to a call of another server, in both directions,
/// until one side ends it: both directions of such a stream end together. Returns how it ended.
///
/// `call`: its halves. Without a sending half the caller's requests are discarded, as for a method that accepts
/// no more of them.
///
/// If the caller closes its stream, a call that has an attached stream too is closed, and what its server still sends
/// is discarded until it confirms, for at most 10 s; another call is cancelled. Requests that are left then are sent
/// first; if the server accepts none of them for 10 s, the call is cancelled. If the server closes or fails, the caller's
/// stream ends after the earlier responses: brpc's streams end without a status.
///
/// # Errors
///
/// The failure of the call, or of the translation.
///
/// # Cancel safety
///
/// Dropping the future cancels the call, and aborts the stream.
pub async fn forward_stream(
    stream: (Streaming<Bytes>, Sender<Bytes>),
    call: (Option<RawSender>, RawReceiver),
    translation: impl StreamTranslation,
) -> Result<StreamEnd> {
    let ((mut messages, sender), (mut onward, mut back)) = (stream, call);
    let there = requests(&mut messages, onward.as_mut(), &translation);
    let here = responses(&mut back, &sender, &translation);
    let ended = first_end(there, here).await;
    let ended = ended.map(|end| end.unwrap_or_else(|| end_of_caller(&mut messages)));
    match (ended, onward) {
        (Ok(StreamEnd::ByCaller), Some(onward)) if !onward.half_closes() => {
            // A server that neither reads nor confirms must not hold the stream forever: nothing else would end it.
            match timeout(CLOSING, close_and_wait(onward, &mut back)).await {
                Ok(ended) => ended.map_err(|error| translation.failure(error)),
                // Dropping both halves cancels the call.
                Err(_) => Ok(StreamEnd::ByCaller),
            }
        }
        // Dropping both halves cancels the call.
        (ended @ Ok(StreamEnd::ByCaller | StreamEnd::CallerGone), _) => ended,
        (ended, onward) => {
            drop((onward, back));
            let _ = sender.close().await;
            ended
        }
    }
}

/// How long the server of a stream may take to accept the last requests of a caller that has gone, and to confirm that
/// the stream is closed.
const CLOSING: Duration = Duration::from_secs(10);

/// Closes the stream of a call and waits for the confirmation. Messages that the server had still sent are discarded, as
/// in brpc.
async fn close_and_wait(onward: RawSender, back: &mut RawReceiver) -> Result<StreamEnd, Error> {
    // If the call has ended, its receiving half has the reason.
    let _ = onward.close().await;
    while back.next().await?.is_some() {}
    Ok(StreamEnd::ByCaller)
}

/// Waits for the end of the requests or of the responses. Returns `None` if the caller accepts no more responses: then
/// only its requests show how it ended.
async fn first_end(
    requests: impl Future<Output = Result<Option<StreamEnd>>>,
    responses: impl Future<Output = Result<Option<StreamEnd>>>,
) -> Result<Option<StreamEnd>> {
    let mut responses = pin!(responses);
    tokio::select! {
        ended = requests => if let Some(end) = ended? {
            return Ok(Some(end));
        },
        ended = &mut responses => return ended,
    }
    responses.await
}

/// Returns `None` if the call accepts no more requests.
async fn requests(
    messages: &mut Streaming<Bytes>,
    mut onward: Option<&mut RawSender>,
    translation: &impl StreamTranslation,
) -> Result<Option<StreamEnd>> {
    let caller = messages.incoming();
    loop {
        let bytes = match messages.message().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Some(StreamEnd::ByCaller)),
            // Its connection was lost, or it has reset the stream.
            Err(_) => return Ok(Some(StreamEnd::CallerGone)),
        };
        let Some(onward) = &mut onward else { continue };
        let sent = onward.send(translation.request(bytes)?);
        tokio::select! {
            biased;
            sent = sent => match sent {
                Ok(()) => {}
                Err(_) => return Ok(None),
            },
            () = wait_until_abandoned(&caller) => return Ok(Some(StreamEnd::CallerGone)),
        }
    }
}

/// Waits until a caller has been gone for too long: nothing else would show that it is, while its server reads nothing.
async fn wait_until_abandoned(caller: &Option<Incoming>) {
    match caller {
        Some(caller) => caller.wait_until_ended().await,
        None => pending().await,
    }
    sleep(CLOSING).await;
}

/// Returns `None` if the caller accepts no more responses.
async fn responses(
    back: &mut RawReceiver,
    sender: &Sender<Bytes>,
    translation: &impl StreamTranslation,
) -> Result<Option<StreamEnd>> {
    while let Some(body) = back.next().await.map_err(|error| translation.failure(error))? {
        if sender.send(translation.response(body)?).await.is_err() {
            return Ok(None);
        }
    }
    Ok(Some(StreamEnd::ByServer))
}

/// How a caller that accepts no more responses ended its stream: the end follows the requests that it had sent.
fn end_of_caller(messages: &mut Streaming<Bytes>) -> StreamEnd {
    loop {
        match messages.message().now_or_never() {
            Some(Ok(Some(_))) => {}
            Some(Ok(None)) => return StreamEnd::ByCaller,
            Some(Err(_)) | None => return StreamEnd::CallerGone,
        }
    }
}

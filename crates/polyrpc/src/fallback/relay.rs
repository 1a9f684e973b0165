use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use polyrpc_core::{Metadata, Status};

use super::fields::keep_end_to_end;
use crate::call::streaming::Streaming;
use crate::client::{RawCall, RawReceiver, RawSender};
use crate::{Error, Failure, Result};

/// Upstream call that was opened for another call.
pub(super) struct Relay {
    /// Forwards the request messages; `None` once all were sent.
    sending: Option<Sending>,
    receiver: RawReceiver,
    failure: MapFailure,
}

/// Returns the failure for the caller, given that of the upstream call.
pub(super) type MapFailure = Box<dyn Fn(Error) -> Failure + Send>;

/// Fails if the messages to send cannot be read.
type Sending = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

impl Relay {
    pub(super) fn new(requests: Streaming<Bytes>, call: RawCall, failure: MapFailure) -> Self {
        let (sender, receiver) = call.split();
        Self { sending: Some(Box::pin(send(requests, sender))), receiver, failure }
    }

    /// Waits for the leading metadata of the response.
    pub(super) async fn metadata(&mut self) -> Result<Metadata, Status> {
        let Self { sending, receiver, failure } = self;
        let metadata = forward_while(sending, receiver.metadata()).await?;
        let mut metadata = metadata.map_err(|error| failure(error).into_status())?.clone();
        keep_end_to_end(&mut metadata);
        Ok(metadata)
    }

    /// Waits for the next response message.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Self { sending, receiver, failure } = self;
        let next = forward_while(sending, receiver.next()).await?;
        let next = next.map_err(|error| failure(error).into_status())?;
        Ok(next.map(|body| body.bytes))
    }

    /// Returns the trailing metadata.
    pub(super) fn trailers(&self) -> Metadata {
        let mut trailers = self.receiver.trailers().clone();
        keep_end_to_end(&mut trailers);
        trailers
    }
}

/// Awaits `waiting`, and forwards the request messages meanwhile.
async fn forward_while<T>(
    sending: &mut Option<Sending>,
    waiting: impl Future<Output = T>,
) -> Result<T, Status> {
    let mut waiting = pin!(waiting);
    poll_fn(|cx| {
        if let Some(running) = sending
            && let Poll::Ready(sent) = running.as_mut().poll(cx)
        {
            *sending = None;
            sent?;
        }
        waiting.as_mut().poll(cx).map(Ok)
    })
    .await
}

async fn send(mut requests: Streaming<Bytes>, mut sender: RawSender) -> Result<(), Status> {
    while let Some(message) = requests.message().await? {
        if sender.send(message).await.is_err() {
            // The call has ended; the receiving half returns the reason.
            return Ok(());
        }
    }
    let _ = sender.finish().await;
    Ok(())
}

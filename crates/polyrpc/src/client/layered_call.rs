//! Calls of a client with layers.
//!
//! A unary call is a future within the futures of the layers. A streaming call is driven by the caller: [`LayerGuard`]
//! then holds the layers, which are polled whenever the caller polls the response.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, mem};

use bytes::Bytes;
use polyrpc_core::{Format, Head, Reply, Status};
use tokio::sync::oneshot;

use super::Client;
use crate::call::Target;
use crate::call::{CallOptions, Outcome, OutcomeKind, OutgoingCall, Response, ResponseFuture, StreamType};
use crate::codec::Body;
use crate::layer::{Call, Erased, Innermost, Next};

impl Client {
    /// Makes a unary call.
    #[cold]
    pub(super) async fn call_within_layers(
        &self,
        mut call: OutgoingCall<'_>,
    ) -> Result<Response<Body>, Status> {
        call.options.timeout = call.options.timeout.or(self.defaults.timeout);
        let format = call.body.format;
        let call = Call::outgoing(call, StreamType::UNARY);
        Next::new(SendToServer { client: self.clone(), open: None }).run(call).await.into_response(format)
    }

    /// Makes a unary call by `open`, which returns streams or another value with the response.
    pub(super) async fn call_attached<T, F>(
        &self,
        mut call: OutgoingCall<'_>,
        open: impl FnOnce(Self, Call) -> F + Send + 'static,
    ) -> Result<(Response<Body>, T), Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<(Response<Body>, T), Status>> + Send + 'static,
    {
        // The time that layers wait counts towards the client's default timeout too, as for other unary calls.
        call.options.timeout = call.options.timeout.or(self.defaults.timeout);
        let format = call.body.format;
        let (result_sender, mut result_receiver) = oneshot::channel();
        let open = move |client, call| -> ResponseFuture {
            Box::pin(async move {
                match open(client, call).await {
                    Ok((response, streams)) => {
                        // If the receiver is gone, this future is dropped too.
                        let _ = result_sender.send(streams);
                        Ok(response).into()
                    }
                    Err(status) => Outcome::failed(status),
                }
            })
        };
        let call = Call::outgoing(call, StreamType::UNARY);
        let innermost = SendToServer { client: self.clone(), open: Some(Box::new(open)) };
        let outcome = Next::new(innermost).run(call).await;
        let response = outcome.into_response(format)?;
        let streams = result_receiver.try_recv().map_err(|_| layer_did_not_open())?;
        Ok((response, streams))
    }

    /// Opens a streaming call, and returns its layer guard.
    pub(super) async fn open_within_layers<T, F>(
        &self,
        call: OutgoingCall<'_>,
        shape: StreamType,
        open: impl FnOnce(Self, Call) -> F + Send + 'static,
    ) -> Result<(T, LayerGuard), Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let (result_sender, mut result_receiver) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let open = move |client, call| -> ResponseFuture {
            Box::pin(async move {
                match open(client, call).await {
                    // The receiver may be gone, in which case this future is dropped too.
                    Ok(opened) => drop(result_sender.send(opened)),
                    Err(status) => return Outcome::failed(status),
                }
                ended.await.unwrap_or_else(|_| Outcome::failed(given_up()))
            })
        };
        let call = Call::outgoing(call, shape);
        let innermost = SendToServer { client: self.clone(), open: Some(Box::new(open)) };
        let mut handling = Next::new(innermost).run(call);
        let opened = poll_fn(|cx| {
            if let Poll::Ready(outcome) = handling.as_mut().poll(cx) {
                return Poll::Ready(Err(outcome.failure().cloned().unwrap_or_else(layer_did_not_open)));
            }
            match Pin::new(&mut result_receiver).poll(cx) {
                Poll::Ready(Ok(opened)) => Poll::Ready(Ok(opened)),
                // A layer has ended the call and will return the reason.
                Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
            }
        });
        let opened = opened.await?;
        Ok((opened, LayerGuard { handling, end: Some(end) }))
    }
}

/// Innermost service: sends a call to a server.
struct SendToServer {
    client: Client,
    /// `None`: unary call.
    open: Option<Open>,
}

/// Opens a streaming call, and returns the future of its end.
type Open = Box<dyn FnOnce(Client, Call) -> ResponseFuture + Send>;

impl Innermost for SendToServer {
    fn layers(&self) -> &[Arc<dyn Erased>] {
        self.client.layers().as_slice()
    }

    fn call(self: Box<Self>, mut call: Call) -> ResponseFuture {
        let Self { client, open } = *self;
        match open {
            Some(open) => open(client, call),
            None => Box::pin(async move {
                match call.take_outgoing() {
                    Ok(outgoing) => client.send(outgoing).await.into(),
                    Err(status) => Outcome::failed(status),
                }
            }),
        }
    }

    fn try_clone(&self) -> Option<Box<dyn Innermost>> {
        match self.open {
            None => Some(Box::new(Self { client: self.client.clone(), open: None })),
            Some(_) => None,
        }
    }

    fn target(&self) -> Option<&Target> {
        Some(self.client.target())
    }
}

impl Call {
    /// Takes the call's names and options, for the function that opens it.
    pub(super) fn take_names(&mut self) -> Result<(String, String, CallOptions), Status> {
        let outgoing = self.take_outgoing()?;
        Ok((outgoing.service.to_owned(), outgoing.method.to_owned(), outgoing.options))
    }
}

/// Layers of a streaming call in progress. Dropping it notifies them that the caller has cancelled the call.
pub(super) struct LayerGuard {
    handling: ResponseFuture,
    /// `None` once the call has ended.
    end: Option<oneshot::Sender<Outcome>>,
}

impl LayerGuard {
    /// Whether the end of the call was reported to the layers.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_none()
    }

    /// Reports the end of the call to the layers.
    pub(super) fn finish(&mut self, outcome: Outcome) {
        if let Some(end) = self.end.take() {
            // A layer may have dropped the receiver.
            let _ = end.send(outcome);
        }
    }

    /// Polls for the outcome that the layers return: after the call's own end, or before.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        self.handling.as_mut().poll(cx)
    }
}

impl fmt::Debug for LayerGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerGuard").field("ended", &self.has_ended()).finish()
    }
}

impl From<Result<Response<Body>, Status>> for Outcome {
    fn from(result: Result<Response<Body>, Status>) -> Self {
        match result {
            Ok(Response { message, metadata, trailers, attachment }) => {
                let Body { format, positional, bytes, .. } = message;
                let head = Head { format, positional, metadata, ..Head::default() };
                OutcomeKind::Reply(Reply { attachment, trailers, ..Reply::new(Ok(bytes), head) }).into()
            }
            Err(status) => Self::failed(status),
        }
    }
}

impl Outcome {
    /// Converts the outcome to the response of a unary call.
    fn into_response(self, format: Format) -> Result<Response<Body>, Status> {
        let reply = match self.0 {
            OutcomeKind::Reply(reply) => reply,
            OutcomeKind::Accept(reply, _) => *reply,
            OutcomeKind::Finish { result, trailers } => {
                result?;
                return Ok(Response { trailers, ..Response::new(Body::new(format, Bytes::new())) });
            }
            OutcomeKind::Unauthenticated(status) | OutcomeKind::Corrupt(status) => return Err(status),
            OutcomeKind::CloseConnection => return Err(Status::aborted("a layer cancelled the call")),
        };
        let Reply { result, head, attachment, trailers } = reply;
        let message = Body { positional: head.positional, ..Body::new(head.format, result?) };
        Ok(Response { message, metadata: head.metadata, trailers, attachment })
    }

    /// Converts the outcome to the end of a streaming response.
    pub(super) fn into_end(mut self) -> (Result<(), Status>, polyrpc_core::Metadata) {
        let trailers = match &mut self.0 {
            OutcomeKind::Finish { trailers, .. } => mem::take(trailers),
            OutcomeKind::Reply(reply) => mem::take(&mut reply.trailers),
            _ => Default::default(),
        };
        match &self.0 {
            OutcomeKind::CloseConnection => (Err(Status::aborted("a layer cancelled the call")), trailers),
            _ => (self.failure().map_or(Ok(()), |status| Err(status.clone())), trailers),
        }
    }
}

#[cold]
fn layer_did_not_open() -> Status {
    Status::internal("a layer ended the call before it was opened, without a reason")
}

#[cold]
fn given_up() -> Status {
    Status::cancelled("the caller cancelled the call")
}

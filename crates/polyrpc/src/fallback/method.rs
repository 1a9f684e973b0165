use std::future::poll_fn;

use bytes::Bytes;
use polyrpc_core::protocol::MetadataSupport;
use polyrpc_core::{Carrier, Format, Head, Metadata, Reply, Status};

use super::relay::Relay;
use super::request::{AcceptedStreamSlot, RawRequest};
use super::response::{Answer, RawResponse};
use crate::call::streaming::{Incoming, Outgoing, Streaming, send};
use crate::call::{
    CallSite, Context, Outcome, OutcomeKind, ResponseFuture, StreamType, Trailers, remove_unsupported,
};
use crate::codec::{Body, Raw};
use crate::service::Method;
use crate::{Failure, Result};

/// A fallback as a method.
pub(super) struct RawMethod<F>(F);

impl<F> RawMethod<F> {
    pub(super) fn new(handler: F) -> Self {
        Self(handler)
    }
}

impl<F, Fut> Method for RawMethod<F>
where
    F: Fn(RawRequest) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<RawResponse>> + Send + 'static,
{
    fn start(&self, cx: Context, body: Body) -> Result<ResponseFuture, Status> {
        let called_from = CalledFrom::new(&cx);
        let (request, accepted) = RawRequest::one(cx, body);
        let handling = (self.0)(request);
        Ok(Box::pin(async move { called_from.end_unary(handling.await, &accepted) }))
    }

    fn stream_type(&self) -> StreamType {
        StreamType::BIDI
    }

    fn open(&self, cx: Context, incoming: Incoming, outgoing: Outgoing) -> Result<ResponseFuture, Status> {
        let called_from = CalledFrom::new(&cx);
        let (request, _) = RawRequest::several(cx, incoming);
        let handling = (self.0)(request);
        Ok(Box::pin(async move { called_from.end_streamed(handling.await, outgoing).await }))
    }
}

/// Parts of a call that are still needed once its handler has it.
struct CalledFrom {
    site: CallSite,
    /// Default format of the response.
    format: Format,
    /// Name of the protocol.
    protocol: &'static str,
    /// How the protocol carries trailers of streams.
    carrier: Carrier,
}

impl CalledFrom {
    fn new(cx: &Context) -> Self {
        let format = cx.reply_format(|_| true);
        let carrier = match cx.protocol().descriptor().capabilities.metadata {
            MetadataSupport::Carried(Carrier::HttpRequest) => Carrier::Http,
            MetadataSupport::Carried(carrier) => carrier,
            MetadataSupport::Refused => Carrier::Any,
        };
        Self { site: cx.site(), format, protocol: cx.protocol().as_str(), carrier }
    }

    /// Ends a call of a protocol with unary responses.
    fn end_unary(&self, result: Result<RawResponse>, accepted: &AcceptedStreamSlot) -> Outcome {
        let mut response = match result {
            Ok(response) => response,
            Err(failure) => return self.fail(failure.into_status()),
        };
        let reply = match std::mem::take(&mut response.answer) {
            Answer::Message(message) => self.reply(response, message),
            Answer::Messages(_) | Answer::Relay(_) => return self.fail(no_streams(self.protocol)),
        };
        match accepted.take() {
            Some(accepted) => OutcomeKind::Accept(Box::new(reply), accepted).into(),
            None => OutcomeKind::Reply(reply).into(),
        }
    }

    async fn end_streamed(&self, result: Result<RawResponse>, outgoing: Outgoing) -> Outcome {
        let mut response = match result {
            Ok(response) => response,
            Err(failure) => return self.fail(failure.into_status()),
        };
        match std::mem::take(&mut response.answer) {
            Answer::Message(message) => OutcomeKind::Reply(self.reply(response, message)).into(),
            Answer::Messages(messages) => self.send(response, messages, outgoing).await,
            Answer::Relay(relay) => self.relay(response, *relay, outgoing).await,
        }
    }

    /// Sends the handler's messages.
    async fn send(
        &self,
        mut response: RawResponse,
        messages: Streaming<Bytes>,
        outgoing: Outgoing,
    ) -> Outcome {
        let (trailers, late) = (std::mem::take(&mut response.trailers), response.late.take());
        let on_end = std::mem::take(&mut response.on_end);
        let head = self.head(response);
        let format = head.format;
        outgoing.set_head(head);
        let result = send::<Raw, Bytes>(messages, &outgoing, format, None).await;
        on_end.call(result.as_ref().copied());
        self.finish(result, with_late(trailers, late.as_ref()))
    }

    /// Sends messages that are relayed from another call.
    async fn relay(&self, mut response: RawResponse, mut relay: Relay, outgoing: Outgoing) -> Outcome {
        let on_end = std::mem::take(&mut response.on_end);
        match relay.metadata().await {
            Ok(metadata) => {
                metadata.iter().for_each(|(key, value)| {
                    response.metadata.append(key.to_owned(), value.clone());
                });
            }
            Err(status) => {
                on_end.call(Err(&status));
                return self.fail(status);
            }
        }
        let (mut trailers, late) = (std::mem::take(&mut response.trailers), response.late.take());
        outgoing.set_head(self.head(response));
        let result = loop {
            poll_fn(|cx| outgoing.poll_room(cx)).await;
            match relay.next().await {
                Ok(Some(message)) => outgoing.send(message),
                Ok(None) => break Ok(()),
                Err(status) => break Err(status),
            }
        };
        on_end.call(result.as_ref().copied());
        if result.is_ok() {
            append(&mut trailers, &relay.trailers());
        }
        self.finish(result, with_late(trailers, late.as_ref()))
    }

    fn head(&self, response: RawResponse) -> Head {
        let RawResponse { metadata, compression, format, .. } = response;
        let format = format.unwrap_or(self.format);
        Head { format, compression, metadata, relayed: true, ..Head::default() }
    }

    fn reply(&self, mut response: RawResponse, message: Bytes) -> Reply {
        let attachment = std::mem::take(&mut response.attachment);
        let trailers = std::mem::take(&mut response.trailers);
        let trailers = with_late(trailers, response.late.take().as_ref());
        Reply { attachment, trailers, ..Reply::new(Ok(message), self.head(response)) }
    }

    /// Fails a call before its response has started. Metadata and trailers of an upstream server's failure are passed
    /// on.
    fn fail(&self, status: Status) -> Outcome {
        let (metadata, trailers) = (status.headers().clone(), status.trailers().clone());
        let head = Head { format: self.format, metadata, relayed: true, ..Head::default() };
        let result = Err(self.site.status_for_caller(status));
        OutcomeKind::Reply(Reply { trailers, ..Reply::new(result, head) }).into()
    }

    fn finish(&self, result: Result<(), Status>, mut trailers: Metadata) -> Outcome {
        if let Err(status) = &result {
            append(&mut trailers, status.trailers());
        }
        if !trailers.is_empty() {
            remove_unsupported(self.carrier, &mut trailers);
        }
        let result = result.map_err(|status| self.site.status_for_caller(status));
        OutcomeKind::Finish { result, trailers }.into()
    }
}

fn with_late(mut trailers: Metadata, late: Option<&Trailers>) -> Metadata {
    if let Some(late) = late {
        late.append_to(&mut trailers);
    }
    trailers
}

fn append(metadata: &mut Metadata, more: &Metadata) {
    more.iter().for_each(|(key, value)| metadata.append(key.to_owned(), value.clone()));
}

/// Status of a call whose protocol cannot carry the handler's response.
#[cold]
fn no_streams(protocol: &str) -> Status {
    Failure::new(
        polyrpc_core::Code::Unimplemented,
        format!("the response is a stream, which {protocol} cannot carry"),
    )
    .into_status()
}

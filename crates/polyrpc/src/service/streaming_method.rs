//! Streaming methods: several messages in at least one direction.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Context as TaskContext;
use std::task::{Poll, Waker};

use bytes::Bytes;
use polyrpc_core::{Head, Status};
use polyrpc_payload::schema;
use polyrpc_wire::Protocol;
use polyrpc_wire::grpc;

use super::method::{Method, finish};
use crate::call::streaming::{Incoming, Outgoing, Streaming, send};
use crate::call::{Context, Outcome, OutcomeKind, ResponseFuture, StreamType};
use crate::codec::{Body, Codec, TypeSchema};
use crate::{Failure, Result};

/// A method that streams according to its `StreamType`, with messages of types `Req` and `Resp`, carried by the codec `C`.
pub(super) struct StreamingMethod<C, Req, Resp, F, Kind> {
    handler: F,
    input: Arc<Option<schema::Message>>,
    output: Arc<Option<schema::Message>>,
    types: PhantomData<fn(C, Req, Kind) -> Resp>,
}

/// One request, any number of responses.
pub(super) struct ServerStreaming;

/// Any number of requests, one response.
pub(super) struct ClientStreaming;

/// Any number of requests, any number of responses.
pub(super) struct BidiStreaming;

impl<C: Codec<Req> + Codec<Resp>, Req, Resp, F, Kind> StreamingMethod<C, Req, Resp, F, Kind> {
    pub(super) fn new(pool: Option<&schema::Pool>, handler: F) -> Self {
        let input = Arc::new(pool.and_then(<C as Codec<Req>>::describe));
        let output = Arc::new(pool.and_then(<C as Codec<Resp>>::describe));
        Self { handler, input, output, types: PhantomData }
    }

    fn message_schemas(&self) -> (TypeSchema, TypeSchema) {
        let request = <C as Codec<Req>>::type_schema(Option::as_ref(&self.input));
        (request, <C as Codec<Resp>>::type_schema(Option::as_ref(&self.output)))
    }
}

impl<C, Req, Resp, F, Fut> Method for StreamingMethod<C, Req, Resp, F, ServerStreaming>
where
    C: Codec<Req> + Codec<Resp>,
    Req: Send + 'static,
    Resp: Send + 'static,
    F: Fn(Context, Req) -> Fut + Send + Sync,
    Fut: Future<Output = (Context, Result<Streaming<Resp>>)> + Send + 'static,
{
    fn start(&self, cx: Context, _: Body) -> Result<ResponseFuture, Status> {
        Err(streaming_unsupported(&cx))
    }

    fn decodes_slowly(&self, body: &Body) -> bool {
        <C as Codec<Req>>::decodes_slowly(body, (*self.input).as_ref())
    }

    fn stream_type(&self) -> StreamType {
        StreamType { client_streaming: false, server_streaming: true }
    }

    fn type_schemas(&self) -> (TypeSchema, TypeSchema) {
        self.message_schemas()
    }

    fn open(&self, cx: Context, incoming: Incoming, outgoing: Outgoing) -> Result<ResponseFuture, Status> {
        let body = Body::new(cx.format(), single_request(&incoming)?);
        let request = cx.facts().read::<C, Req>(body, (*self.input).as_ref())?;
        let handling = (self.handler)(cx, request);
        Ok(Box::pin(answer::<C, Resp>(handling, outgoing, self.output.clone())))
    }
}

impl<C, Req, Resp, F, Fut> Method for StreamingMethod<C, Req, Resp, F, ClientStreaming>
where
    C: Codec<Req> + Codec<Resp>,
    Req: Send + 'static,
    Resp: Send + 'static,
    F: Fn(Context, Streaming<Req>) -> Fut + Send + Sync,
    Fut: Future<Output = (Context, Result<Resp>)> + Send + 'static,
{
    /// In a protocol without streams, the one request is a stream of one message.
    fn start(&self, cx: Context, body: Body) -> Result<ResponseFuture, Status> {
        let request = cx.facts().read::<C, Req>(body, (*self.input).as_ref())?;
        Ok(self.handle(cx, Streaming::once(request)))
    }

    fn decodes_slowly(&self, body: &Body) -> bool {
        <C as Codec<Req>>::decodes_slowly(body, (*self.input).as_ref())
    }

    fn stream_type(&self) -> StreamType {
        StreamType { client_streaming: true, server_streaming: false }
    }

    fn type_schemas(&self) -> (TypeSchema, TypeSchema) {
        self.message_schemas()
    }

    fn open(&self, cx: Context, incoming: Incoming, _: Outgoing) -> Result<ResponseFuture, Status> {
        let requests = requests::<C, Req>(&cx, incoming, self.input.clone());
        Ok(self.handle(cx, requests))
    }
}

impl<C, Req, Resp, F, Fut> StreamingMethod<C, Req, Resp, F, ClientStreaming>
where
    C: Codec<Resp>,
    F: Fn(Context, Streaming<Req>) -> Fut,
    Fut: Future<Output = (Context, Result<Resp>)> + Send + 'static,
    Resp: 'static,
{
    fn handle(&self, cx: Context, requests: Streaming<Req>) -> ResponseFuture {
        let handling = (self.handler)(cx, requests);
        let output = self.output.clone();
        Box::pin(async move {
            let (cx, result) = handling.await;
            finish::<C, Resp>(cx, result, (*output).as_ref())
        })
    }
}

impl<C, Req, Resp, F, Fut> Method for StreamingMethod<C, Req, Resp, F, BidiStreaming>
where
    C: Codec<Req> + Codec<Resp>,
    Req: Send + 'static,
    Resp: Send + 'static,
    F: Fn(Context, Streaming<Req>) -> Fut + Send + Sync,
    Fut: Future<Output = (Context, Result<Streaming<Resp>>)> + Send + 'static,
{
    fn start(&self, cx: Context, _: Body) -> Result<ResponseFuture, Status> {
        Err(streaming_unsupported(&cx))
    }

    fn stream_type(&self) -> StreamType {
        StreamType { client_streaming: true, server_streaming: true }
    }

    fn type_schemas(&self) -> (TypeSchema, TypeSchema) {
        self.message_schemas()
    }

    fn open(&self, cx: Context, incoming: Incoming, outgoing: Outgoing) -> Result<ResponseFuture, Status> {
        let requests = requests::<C, Req>(&cx, incoming, self.input.clone());
        let handling = (self.handler)(cx, requests);
        Ok(Box::pin(answer::<C, Resp>(handling, outgoing, self.output.clone())))
    }
}

impl<C, Req, Resp, F, Kind> fmt::Debug for StreamingMethod<C, Req, Resp, F, Kind> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamingMethod")
    }
}

/// Returns the request of a method that takes exactly one.
fn single_request(incoming: &Incoming) -> Result<Bytes, Status> {
    match incoming.poll_next(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(Some(message)) => message,
        Poll::Ready(None) | Poll::Pending => Err(Status::internal("the request is missing")),
    }
}

fn requests<C: Codec<Req>, Req: Send + 'static>(
    cx: &Context,
    incoming: Incoming,
    schema: Arc<Option<schema::Message>>,
) -> Streaming<Req> {
    let (format, protocol, facts) = (cx.format(), cx.protocol(), cx.facts().clone());
    let described = schema.clone();
    let decodes_slowly =
        move |bytes: &Bytes| C::decodes_slowly(&Body::new(format, bytes.clone()), (*described).as_ref());
    let decode = move |bytes: Bytes| {
        let read = facts.read::<C, Req>(Body::new(format, bytes), (*schema).as_ref());
        read.map_err(|status| unreadable(protocol, status))
    };
    Streaming::from_incoming_on_server(incoming, decodes_slowly, decode)
}

/// A message that cannot be decoded is INTERNAL in gRPC (`doc/statuscodes.md`).
#[cold]
fn unreadable(protocol: Protocol, status: Status) -> Status {
    match protocol {
        Protocol::Grpc => grpc::decompression_failed(status),
        _ => status,
    }
}

/// Waits for the handler's result and sends every message of it.
async fn answer<C: Codec<Resp>, Resp: Send + 'static>(
    handling: impl Future<Output = (Context, Result<Streaming<Resp>, Failure>)>,
    outgoing: Outgoing,
    schema: Arc<Option<schema::Message>>,
) -> Outcome {
    let (cx, result) = handling.await;
    let format = cx.reply_format(C::carries);
    let messages = match result {
        Ok(messages) => messages,
        Err(error) => return cx.end(format, Err(error.into_status())),
    };
    let site = cx.site();
    let (reply, late) = cx.into_answer();
    if reply.close_connection {
        return OutcomeKind::CloseConnection.into();
    }
    outgoing.set_head(Head {
        format,
        compression: reply.compression,
        checksum: reply.checksum,
        metadata: reply.metadata,
        ..Head::default()
    });
    let result = send::<C, Resp>(messages, &outgoing, format, (*schema).as_ref()).await;
    let result = result.map_err(|status| site.status_for_caller(status));
    let mut trailers = reply.trailers;
    late.append_to(&mut trailers);
    OutcomeKind::Finish { result, trailers }.into()
}

/// Returns the response to a call of a streaming method by a protocol without streams.
#[cold]
fn streaming_unsupported(cx: &Context) -> Status {
    Status::unimplemented(format!(
        "the method returns a stream, which {} cannot carry",
        cx.protocol().as_str()
    ))
}

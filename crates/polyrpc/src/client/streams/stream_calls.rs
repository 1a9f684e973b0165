//! Streaming calls, as made by stubs.

use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use polyrpc_core::{Call, Fault, Format, Head, Metadata, Status};
use polyrpc_payload::schema;

use super::bidi_call::{BidiCall, MessageSource, Requests};
use super::raw::RawCall;
use super::streaming_call::{CallReceiver, CallSender, StreamingCall};
use crate::call::streaming::StreamOptions;
use crate::call::{CallOptions, CancelHandle, OutgoingCall, Request, Response, StreamType, StubMethod};
use crate::client::call_defaults::unreadable;
use crate::client::cluster::{CallAttempt, RoutingOptions};
use crate::client::connection::any_connection::AttachedStreams;
use crate::client::connection::call_slot;
use crate::client::{Backend, Client, Result, split};
use crate::codec::{Body, Codec};
use crate::layer::Call as LayeredCall;
use crate::{Failure, Streaming};

impl Client {
    /// Calls a server-streaming or bidirectional method, as a typed stub does. A method that takes a single message
    /// gets a stream of one.
    ///
    /// The future completes when the response has started, which some servers do only with the first message. The
    /// requests are sent while the caller polls: in this future, and later in the stream of response messages. No task
    /// runs in the background. An error of the requests ends the call with that error; so do a timeout in the options
    /// and the end of the connection. Dropping the stream cancels the call.
    ///
    /// # Errors
    ///
    /// The server's error, or the reason why the server could not be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call; the server may have started it.
    pub async fn invoke_streaming<C, Req, Resp>(
        &self,
        stub_method: &StubMethod,
        request: impl Into<Request<Streaming<Req>>>,
    ) -> Result<Response<Streaming<Resp>>>
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
        Resp: Send + 'static,
    {
        let mut request = request.into();
        let cancel = request.options.cancel.take();
        let start = self.start_bidi::<C, Req>(stub_method, request, StreamType::BIDI);
        let (head, call) = run_until_cancelled(&cancel, start).await?;
        let messages = answer::<C, Resp>(call, stub_method.output.clone(), cancel);
        Ok(Response { metadata: head.metadata, ..Response::new(messages) })
    }

    /// Calls a client-streaming method, as a typed stub does.
    ///
    /// The requests are sent while the future is polled, until the server replies.
    ///
    /// # Errors
    ///
    /// See [`invoke_streaming`](Self::invoke_streaming).
    ///
    /// # Cancel safety
    ///
    /// See [`invoke_streaming`](Self::invoke_streaming).
    pub async fn invoke_client_streaming<C, Req, Resp>(
        &self,
        stub_method: &StubMethod,
        request: impl Into<Request<Streaming<Req>>>,
    ) -> Result<Response<Resp>>
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
    {
        if self.defaults.attaches_streams() {
            // Both directions end together: no reply could follow the last request.
            return Err(Status::unimplemented("baidu_std cannot half-close a stream").into());
        }
        let mut request = request.into();
        let cancel = request.options.cancel.take();
        let shape = StreamType { client_streaming: true, server_streaming: false };
        let (head, mut call) =
            run_until_cancelled(&cancel, self.start_bidi::<C, Req>(stub_method, request, shape)).await?;
        let body = run_until_cancelled(&cancel, single_message(&mut call)).await?;
        let message = C::decode(body, stub_method.output.as_ref()).map_err(|status| unreadable(&status))?;
        let trailers = call.trailers().clone();
        Ok(Response { metadata: head.metadata, trailers, ..Response::new(message) })
    }

    /// Opens a call whose encoded messages are sent and received one by one; sent messages are in `format`.
    ///
    /// The future completes when the call has been sent, over baidu_std when its reply has arrived. There the
    /// call itself carries no message: a method that expects one needs
    /// [`open_stream_raw`](Self::open_stream_raw). The options' own format is ignored.
    ///
    /// # Errors
    ///
    /// If there is no connection, or the protocol has no streams.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call.
    pub async fn open_raw(&self, target: &str, options: CallOptions, format: Format) -> Result<RawCall> {
        let (service, method) = split(target);
        if self.layers.is_empty() {
            let (sending, receiving) = self.open_halves(service, method, options, format).await?;
            return Ok(RawCall::new(sending, receiving));
        }
        let call = self.outgoing_raw_call(service, method, options, format);
        let open = move |client: Self, mut call: LayeredCall| async move {
            let (service, method, options) = call.take_names()?;
            client.open_halves(&service, &method, options, format).await
        };
        let ((sending, mut receiving), layer_guard) =
            self.open_within_layers(call, StreamType::BIDI, open).await?;
        receiving.attach_layers(layer_guard);
        Ok(RawCall::new(sending, receiving))
    }

    /// Returns a raw streaming call as the layers see it.
    fn outgoing_raw_call<'a>(
        &self,
        service: &'a str,
        method: &'a str,
        options: CallOptions,
        format: Format,
    ) -> OutgoingCall<'a> {
        let (body, protocol) = (Body::new(format, Bytes::new()), self.defaults.protocol);
        OutgoingCall { service, method, body, options, protocol }
    }

    async fn open_halves(
        &self,
        service: &str,
        method: &str,
        options: CallOptions,
        format: Format,
    ) -> Result<(CallSender, CallReceiver), Status> {
        let mut attempt = self.attempt(service, method, format, options, false)?;
        if self.defaults.attaches_streams() {
            let (sending, receiving, _) = self.open_accepted(&mut attempt, format).await?;
            return Ok((sending, receiving));
        }
        let (mut sending, receiving) = self.open(&mut attempt, format).await?;
        // The call is sent regardless of the capacity for messages.
        poll_fn(|cx| {
            sending.start(cx);
            Poll::Ready(())
        })
        .await;
        Ok((sending, receiving))
    }

    /// Makes a call and sends its requests until the response starts.
    async fn start_bidi<C, Req>(
        &self,
        stub_method: &StubMethod,
        request: Request<Streaming<Req>>,
        shape: StreamType,
    ) -> Result<(Head, BidiCall), Status>
    where
        C: Codec<Req>,
        Req: Send + 'static,
    {
        let Request { message, options } = request;
        let StubMethod { service, method, .. } = *stub_method;
        let format = self.defaults.format(C::PREFERRED, &options);
        let requests = requests::<C, Req>(message, format, stub_method.input.clone());
        if self.layers.is_empty() {
            return self.open_bidi(service, method, options, format, requests).await;
        }
        let call = self.outgoing_raw_call(service, method, options, format);
        let open = move |client: Self, mut call: LayeredCall| async move {
            let (service, method, options) = call.take_names()?;
            client.open_bidi(&service, &method, options, format, requests).await
        };
        let ((head, mut call), layer_guard) = self.open_within_layers(call, shape, open).await?;
        call.attach_layers(layer_guard);
        Ok((head, call))
    }

    async fn open_bidi(
        &self,
        service: &str,
        method: &str,
        options: CallOptions,
        format: Format,
        mut requests: Requests,
    ) -> Result<(Head, BidiCall), Status> {
        let keep = self.retains_calls();
        let mut attempt = self.attempt(service, method, format, options, keep)?;
        if self.defaults.attaches_streams() {
            let left = send_first(&mut requests, &mut attempt).await?;
            let (sending, receiving, head) = self.open_accepted(&mut attempt, format).await?;
            let requests = Box::pin(stream::iter(left.map(Ok)).chain(requests));
            return Ok((head, BidiCall::new(MessageSource::new(requests, false), (sending, receiving))));
        }
        let mut source = MessageSource::new(requests, keep);
        loop {
            let mut call = BidiCall::new(source, self.open(&mut attempt, format).await?);
            let status = match poll_fn(|cx| call.poll_head(cx)).await {
                Ok(head) => {
                    call.disable_retry();
                    return Ok((head, call));
                }
                Err(status) => status,
            };
            let connection = call.connection().clone();
            match call.into_rewound() {
                Some(rewound) if attempt.should_retry(&status, &connection) => source = rewound,
                _ => return Err(status),
            }
        }
    }

    fn attempt<'a>(
        &'a self,
        service: &'a str,
        method: &'a str,
        format: Format,
        options: CallOptions,
        keep: bool,
    ) -> Result<CallAttempt<'a>, Status> {
        let routing = self.defaults.routing_options(&options);
        let call = self.defaults.streaming_call(service, method, format, options)?;
        self.attempt_of(call, routing, keep)
    }

    /// Creates an attempt of a call to one of the client's servers.
    pub(super) fn attempt_of<'a>(
        &'a self,
        call: Call<'a>,
        routing: RoutingOptions,
        keep: bool,
    ) -> Result<CallAttempt<'a>, Status> {
        match &self.backend {
            Backend::Network(pool) => Ok(CallAttempt::new(pool, call, routing.wait_for_ready, keep)),
            Backend::Channel(channel) => Ok(CallAttempt::through_channel(channel, call, routing)),
            Backend::Server(server) => {
                Ok(CallAttempt::new(server.pool(), call, routing.wait_for_ready, keep))
            }
            Backend::Combo(_) => Err(Status::unimplemented("a streaming call cannot go to several servers")),
            Backend::Mock(_) => Err(Status::unimplemented("a mocked client has no streams")),
        }
    }

    /// Calls a streaming method of a protocol with attached streams: the response arrives on the stream that the reply
    /// accepts.
    async fn open_accepted(
        &self,
        attempt: &mut CallAttempt<'_>,
        format: Format,
    ) -> Result<(CallSender, CallReceiver, Head), Status> {
        let stream_options =
            AttachedStreams { options: StreamOptions::default(), streams: 1, ends_with_call: true };
        let (reply, mut halves) = self.open_with_streams(attempt, format, &stream_options).await?;
        let (sending, mut receiving) =
            halves.pop().ok_or_else(|| Status::internal("the stream is missing"))?;
        receiving.start_response(reply.head.clone());
        Ok((sending, receiving, reply.head))
    }

    /// Opens a call on a connection that takes it.
    async fn open(
        &self,
        attempt: &mut CallAttempt<'_>,
        format: Format,
    ) -> Result<(CallSender, CallReceiver), Status> {
        loop {
            let connection = attempt.connect().await?;
            call_slot::announce(connection.slot(), &mut attempt.call)?;
            match connection.slot().open(&mut attempt.call, attempt.deadline) {
                Ok(id) => {
                    return Ok(StreamingCall::new(Arc::new(connection), id)
                        .halves(format, self.defaults.max_decompressed));
                }
                Err(status) if attempt.should_retry(&status, &connection) => {}
                Err(status) => return Err(status),
            }
        }
    }
}

impl RawCall {
    /// Converts the call to typed messages in the codec `C`: takes those to send, and returns those received.
    ///
    /// No task runs in the background: messages are sent while the caller polls the returned stream. Dropping it ends
    /// the call.
    pub fn into_streaming<C, Out, In>(self, outgoing: Streaming<Out>) -> Streaming<In>
    where
        C: Codec<Out> + Codec<In>,
        Out: Send + 'static,
        In: Send + 'static,
    {
        let format = <C as Codec<Out>>::PREFERRED;
        let (sending, mut receiving) = self.into_halves();
        let metadata = receiving.head().map(|head| head.metadata.clone()).unwrap_or_default();
        receiving.start_response(Head { format, metadata, ..Head::default() });
        let source = MessageSource::new(requests::<C, Out>(outgoing, format, None), false);
        answer::<C, In>(BidiCall::new(source, (sending, receiving)), None, None)
    }
}

/// Sends the first request with the call if it is available: a method that takes one message finds it there. An empty
/// request follows on the stream, since an empty call only opens one.
async fn send_first(requests: &mut Requests, attempt: &mut CallAttempt<'_>) -> Result<Option<Bytes>, Status> {
    let at_hand = poll_fn(|cx| match requests.as_mut().poll_next(cx) {
        Poll::Ready(first) => Poll::Ready(first),
        Poll::Pending => Poll::Ready(None),
    });
    let first = at_hand.await.transpose()?;
    match (first, &mut attempt.call) {
        (Some(first), Some(call)) if !first.is_empty() => {
            call.body = first;
            Ok(None)
        }
        (first, _) => Ok(first),
    }
}

/// Encodes the requests when there is capacity for them.
fn requests<C: Codec<Req>, Req: Send + 'static>(
    messages: Streaming<Req>,
    format: Format,
    schema: Option<schema::Message>,
) -> Requests {
    Box::pin(messages.map(move |message| match message {
        Ok(message) => C::encode_owned(message, format, schema.as_ref()),
        // The detail may be exposed: the caller in this process created the error.
        Err(error) => Err(error.into_status().exposed()),
    }))
}

/// Stream of response messages.
fn answer<C: Codec<Resp>, Resp: Send + 'static>(
    call: BidiCall,
    schema: Option<schema::Message>,
    cancel: Option<CancelHandle>,
) -> Streaming<Resp> {
    let mut cancelled = cancel.map(|cancel| Box::pin(cancel.cancelled()));
    let trailers = Arc::new(OnceLock::new());
    let mut call = Some(call);
    let behind = trailers.clone();
    let messages = stream::poll_fn(move |cx| {
        if let Some(cancelled) = &mut cancelled
            && call.is_some()
            && let Poll::Ready(status) = cancelled.as_mut().poll(cx)
        {
            call = None;
            return Poll::Ready(Some(Err(status.into())));
        }
        let next = ready!(poll_answer(&mut call, &behind, cx));
        let message = next.map(|body| {
            let message = C::decode(body?, schema.as_ref()).map_err(|status| unreadable(&status))?;
            Ok::<_, Failure>(message)
        });
        if let Some(Err(_)) = message {
            // Further data from the server is not received.
            call = None;
        }
        Poll::Ready(message)
    });
    Streaming::answer(messages, trailers)
}

/// Polls the next message; at the end releases the call and its connection.
fn poll_answer(
    call: &mut Option<BidiCall>,
    trailers: &OnceLock<Metadata>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Body, Status>>> {
    let Some(open_call) = call else { return Poll::Ready(None) };
    let next = ready!(open_call.poll_next(cx));
    if let None | Some(Err(_)) = next {
        // Set only once, since this is the end.
        let _ = trailers.set(open_call.trailers().clone());
        *call = None;
    }
    Poll::Ready(next)
}

/// Awaits `call`, unless the handle cancels it.
async fn run_until_cancelled<T>(
    cancel: &Option<CancelHandle>,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match cancel {
        Some(cancel) => cancel.clone().guard(call).await,
        None => call.await,
    }
}

/// Returns the only message of a response.
async fn single_message(call: &mut BidiCall) -> Result<Body, Status> {
    let Some(body) = poll_fn(|cx| call.poll_next(cx)).await.transpose()? else {
        return Err(not_one("the server answered without a message"));
    };
    match poll_fn(|cx| call.poll_next(cx)).await.transpose()? {
        None => Ok(body),
        Some(_) => Err(not_one("the server answered with more than one message")),
    }
}

/// gRPC's `doc/statuscodes.md`, "Response cardinality violation".
#[cold]
fn not_one(what: &'static str) -> Status {
    Status::unimplemented(what).with_fault(Fault::Peer)
}

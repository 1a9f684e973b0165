//! Client side of streams attached to a call (brpc's streaming_rpc).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use polyrpc_core::{Call, CallId, Format, Head, Reply, Status};

use super::raw::RawCall;
use super::streaming_call::{CallReceiver, CallSender, StreamingCall};
use crate::call::streaming::StreamOptions;
use crate::call::{CallOptions, OutgoingCall, Request, Response};
use crate::client::cluster::{CallAttempt, CallConnection};
use crate::client::connection::any_connection::AttachedStreams;
use crate::client::connection::call_slot::{self, CallSlot};
use crate::client::{Client, Result, split};
use crate::codec::{Body, Codec};
use crate::layer::Call as LayeredCall;

impl Client {
    /// Makes a call and opens a stream attached to it (brpc's `StreamCreate`). Returns the reply and the stream, whose
    /// messages are opaque to the protocol.
    ///
    /// The call's timeout applies to the call only. The stream lasts until a side closes it, the connection breaks, or
    /// no message was sent or received for [`idle_timeout`](StreamOptions::idle_timeout), if that is set
    /// ([`DeadlineExceeded`](crate::Code::DeadlineExceeded)). [`RawCall::close`] closes it gracefully and waits for the
    /// server's confirmation; dropping it closes it without waiting. A brpc stream ends in both directions at once, so
    /// [`RawCall::finish_sending`] is rejected.
    ///
    /// # Errors
    ///
    /// The server's error, or the reason why the server could not be reached; brpc's 1003 if it replied without
    /// accepting the stream; [`Unimplemented`](crate::Code::Unimplemented) if the protocol has no attached streams.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call; the server may have started it.
    pub async fn open_stream<C, Req, Resp>(
        &self,
        target: &str,
        request: impl Into<Request<Req>>,
        stream: StreamOptions,
    ) -> Result<(Response<Resp>, RawCall)>
    where
        C: Codec<Req> + Codec<Resp>,
    {
        let Request { message, options } = request.into();
        let body = self.defaults.encode::<C, Req>(message, None, &options)?;
        let (response, call) = self.open_stream_raw(target, body, options, stream).await?;
        Ok((response.decode::<C, Resp>(None)?, call))
    }

    /// [`open_stream`](Self::open_stream) with an encoded message and an encoded reply.
    ///
    /// # Errors
    ///
    /// See [`open_stream`](Self::open_stream).
    ///
    /// # Cancel safety
    ///
    /// See [`open_stream`](Self::open_stream).
    pub async fn open_stream_raw(
        &self,
        target: &str,
        body: Body,
        options: CallOptions,
        stream: StreamOptions,
    ) -> Result<(Response<Body>, RawCall)> {
        let (response, mut calls) = self.open_streams_raw(target, body, options, stream, 1).await?;
        let call = calls.pop().ok_or_else(|| Status::internal("the stream is missing"))?;
        Ok((response, call))
    }

    /// [`open_stream_raw`](Self::open_stream_raw) with several streams attached to one call. A server accepts all of
    /// them or none.
    ///
    /// # Errors
    ///
    /// See [`open_stream`](Self::open_stream).
    ///
    /// # Cancel safety
    ///
    /// See [`open_stream`](Self::open_stream).
    pub async fn open_streams_raw(
        &self,
        target: &str,
        body: Body,
        options: CallOptions,
        stream: StreamOptions,
        streams: usize,
    ) -> Result<(Response<Body>, Vec<RawCall>)> {
        let (service, method) = split(target);
        let attached = AttachedStreams { options: stream, streams: streams.max(1), ends_with_call: false };
        let call = OutgoingCall { service, method, body, options, protocol: self.defaults.protocol };
        let (response, halves) = if self.layers().is_empty() {
            self.call_with_streams(call, &attached).await?
        } else {
            let open = move |client: Self, mut call: LayeredCall| async move {
                client.call_with_streams(call.take_outgoing()?, &attached).await
            };
            self.call_attached(call, open).await?
        };
        let calls = halves.into_iter().map(|(sending, receiving)| RawCall::new(sending, receiving));
        Ok((response, calls.collect()))
    }

    /// Makes a call with attached streams, after the layers.
    async fn call_with_streams(
        &self,
        call: OutgoingCall<'_>,
        attached: &AttachedStreams,
    ) -> Result<(Response<Body>, Vec<(CallSender, CallReceiver)>), Status> {
        let OutgoingCall { service, method, body, options, .. } = call;
        let routing = self.defaults.routing_options(&options);
        let call = self.defaults.call(service, method, body, options)?;
        let format = call.head.format;
        let mut attempt = self.attempt_of(call, routing, false)?;
        let (reply, halves) = self.open_with_streams(&mut attempt, format, attached).await?;
        Ok((self.defaults.open(Some(reply), format)?, halves))
    }

    /// Makes a call with attached streams on a connection that takes it; the reply has accepted them.
    pub(super) async fn open_with_streams(
        &self,
        attempt: &mut CallAttempt<'_>,
        format: Format,
        attached: &AttachedStreams,
    ) -> Result<(Reply, Vec<(CallSender, CallReceiver)>), Status> {
        loop {
            let connection = Arc::new(attempt.connect().await?);
            call_slot::announce(connection.slot(), &mut attempt.call)?;
            let (call, deadline) = (&mut attempt.call, attempt.deadline);
            match call_on(&connection, call, deadline, attached).await {
                Ok((reply, opened)) => {
                    connection.finish(reply.result.as_ref().err());
                    if let Err(status) = &reply.result {
                        let (headers, trailers) = (reply.head.metadata.clone(), reply.trailers.clone());
                        return Err(status.clone().received_with(headers, trailers));
                    }
                    if let Some(idle) = attached.options.idle_timeout {
                        opened.iter().for_each(|opened| opened.end_if_idle(idle));
                    }
                    let limit = self.defaults.max_decompressed;
                    // The reply has accepted the streams: its metadata precede their messages.
                    let head = Head { format, metadata: reply.head.metadata.clone(), ..Head::default() };
                    let halves = opened.into_iter().map(|opened| {
                        let (sending, mut receiving) = opened.halves(format, limit);
                        receiving.start_response(head.clone());
                        (sending, receiving)
                    });
                    let halves = halves.collect();
                    return Ok((reply, halves));
                }
                Err(status) if attempt.should_retry(&status, &connection) => {}
                Err(status) => return Err(status),
            }
        }
    }
}

/// Sends a call and waits for its reply. The call is left in place as by [`CallSlot::submit`].
async fn call_on(
    connection: &Arc<CallConnection>,
    call: &mut Option<Call<'_>>,
    deadline: Option<Instant>,
    attached: &AttachedStreams,
) -> Result<(Reply, Vec<StreamingCall>), Status> {
    let mut sent = None;
    let reply = poll_fn(|cx| match &sent {
        None => match connection.slot().submit_with_streams(call, deadline, attached, cx.waker()) {
            Ok((id, streams)) => {
                // From here on dropping the future releases everything.
                let opened =
                    streams.into_iter().map(|id| StreamingCall::new(connection.clone(), id)).collect();
                sent = Some((AbandonOnDrop { slot: connection.slot(), id: Some(id) }, opened));
                Poll::Pending
            }
            Err(status) => Poll::Ready(Err(status)),
        },
        Some((AbandonOnDrop { id: Some(id), .. }, _)) => connection.slot().poll_reply(*id, cx),
        Some(_) => Poll::Pending,
    })
    .await;
    if let Some((waiting, _)) = &mut sent {
        // The reply was taken: nothing is left to abandon.
        waiting.id = None;
    }
    let opened: Vec<StreamingCall> = sent.map(|(_, opened)| opened).unwrap_or_default();
    Ok((reply?, opened))
}

/// Call in flight; dropping it abandons the call.
struct AbandonOnDrop<'s> {
    slot: &'s CallSlot,
    id: Option<CallId>,
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.slot.abandon(id);
        }
    }
}

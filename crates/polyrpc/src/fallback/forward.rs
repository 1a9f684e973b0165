//! Forwarding of a call to another server.

use bytes::Bytes;
use polyrpc_wire::Protocol;

use super::fields::keep_end_to_end;
use super::{RawRequest, RawResponse};
use crate::Result;
use crate::call::streaming::{Sender, StreamOptions, Streaming};
use crate::client::{Client, RawCall};
use crate::codec::Body;

impl RawRequest {
    /// Forwards the call to another server, and returns its response: message, metadata, attachment, timeout, streams.
    ///
    /// The client's protocol may differ, if both support the same format: nothing is decoded. Options that it does not
    /// support are rejected before the call is sent. Numbers of functions (rest_rpc, fb_rpc) are only valid within
    /// their protocol. A call that may have several messages (gRPC) needs a client whose protocol has streams.
    ///
    /// Like a proxy, it removes hop-by-hop HTTP fields and those of one message (`connection`, `te`, `host`,
    /// `content-*`), and those of gRPC (`grpc-*`), if the call is forwarded by gRPC or HTTP, and likewise from the
    /// response. Other metadata that the client's protocol does not support make the call fail with
    /// [`InvalidArgument`](crate::Code::InvalidArgument) before it is sent.
    ///
    /// # Errors
    ///
    /// The failure returned by the server, with its metadata, or the reason why the server could not be called.
    pub async fn forward(mut self, client: &Client) -> Result<RawResponse> {
        let (target, mut options) = (self.target(), self.options());
        let writes_fields = |protocol: Protocol| protocol.descriptor().capabilities.has_fields();
        if writes_fields(client.protocol()) {
            keep_end_to_end(&mut options.metadata);
        }
        let answers_in_fields = writes_fields(self.protocol());
        if self.is_streamed() {
            let call = client.open_raw(&target, options, self.format()).await?;
            return Ok(RawResponse::relay(self.messages(), call));
        }
        let body = self.body().await?;
        let offered = self.offered_streams();
        if offered == 0 {
            let mut response = client.call_raw(&target, body, options).await?;
            if answers_in_fields {
                keep_end_to_end(&mut response.metadata);
                keep_end_to_end(&mut response.trailers);
            }
            return Ok(response.into());
        }
        let stream_options = StreamOptions::default();
        let (response, calls) =
            client.open_streams_raw(&target, body, options, stream_options.clone(), offered).await?;
        for ((messages, sender), call) in self.accept_streams(stream_options)?.into_iter().zip(calls) {
            tokio::spawn(carry(messages, sender, call));
        }
        Ok(response.into())
    }
}

/// Forwards an attached stream in both directions until one side ends it: both directions end together.
async fn carry(mut messages: Streaming<Bytes>, sender: Sender<Bytes>, call: RawCall) {
    let (mut onward, mut back) = call.split();
    let there = async {
        while let Ok(Some(message)) = messages.message().await {
            if onward.send(message).await.is_err() {
                break;
            }
        }
    };
    let here = async {
        while let Ok(Some(Body { bytes, .. })) = back.next().await {
            if sender.send(bytes).await.is_err() {
                break;
            }
        }
    };
    let peer_ended = tokio::select! {
        () = there => false,
        () = here => true,
    };
    // The other side receives the end after all messages.
    if peer_ended {
        let _ = sender.close().await;
    } else {
        let _ = onward.close().await;
        while let Ok(Some(_)) = back.next().await {}
    }
}

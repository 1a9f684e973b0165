//! A call that goes on to another server.

use bytes::Bytes;
use polyrpc_wire::Protocol;

use super::fields::keep_end_to_end;
use super::{RawRequest, RawResponse};
use crate::Result;
use crate::client::{Client, RawCall};
use crate::codec::Body;
use crate::streaming::{Sender, StreamOptions, Streaming};

impl RawRequest {
    /// Makes the same call of another server, and answers as that does: message, metadata, attachment, time, streams.
    ///
    /// The client's protocol may be another one, if both carry the same format: nothing is decoded. What it has no place
    /// for is refused before it is sent. Numbers of functions (rest_rpc, fb_rpc) mean something in their own protocol only.
    /// A call that may have several messages (gRPC) needs a client whose protocol has streams.
    ///
    /// As a proxy does, it leaves out fields of HTTP that speak of one connection or of one message (`connection`, `te`,
    /// `host`, `content-*`) or belong to gRPC (`grpc-*`), where the call goes on by gRPC or HTTP, and likewise with the
    /// answer. Other metadata that the client's protocol cannot carry fail the call with
    /// [`InvalidArgument`](crate::Code::InvalidArgument), before it is sent.
    ///
    /// # Errors
    ///
    /// What the server answers, with what it sent beside it; why it could not be asked.
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
        let beside = StreamOptions::default();
        let (response, calls) =
            client.open_streams_raw(&target, body, options, beside.clone(), offered).await?;
        for ((messages, sender), call) in self.accept_streams(beside)?.into_iter().zip(calls) {
            tokio::spawn(carry(messages, sender, call));
        }
        Ok(response.into())
    }
}

/// Carries a stream beside a call on, both ways, until a side ends it: both directions end together.
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
    // The side that is left learns of the end behind what was sent to it.
    if peer_ended {
        let _ = sender.close().await;
    } else {
        let _ = onward.close().await;
        while let Ok(Some(_)) = back.next().await {}
    }
}

//! Forwarding of a call to another server.

use polyrpc_wire::Protocol;

use super::attached::forward_stream;
use super::fields::keep_end_to_end;
use super::{RawRequest, RawResponse};
use crate::Result;
use crate::call::streaming::StreamOptions;
use crate::client::Client;

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
        for (stream, call) in self.accept_streams(stream_options)?.into_iter().zip(calls) {
            let (sender, receiver) = call.split();
            let (stream, target) = (forward_stream(stream, (Some(sender), receiver), ()), target.clone());
            tokio::spawn(async move {
                if let Err(failure) = stream.await {
                    let failure = failure.status();
                    tracing::debug!(target: "polyrpc::server", method = target, %failure, "a forwarded stream failed");
                }
            });
        }
        Ok(response.into())
    }
}

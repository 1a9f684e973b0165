use bytes::Bytes;
use polyrpc::codec::Raw;
use polyrpc::streaming::{Sender, StreamOptions};
use polyrpc::{Context, Result, Streaming};

use crate::proto::example::{EchoRequest, EchoResponse, EchoService};

/// brpc's echo example: returns the message and the attachment. Also serves brpc's streaming example: returns each message of
/// a stream.
pub(super) struct Echo;

impl EchoService for Echo {
    async fn echo(&self, cx: &mut Context, request: EchoRequest) -> Result<EchoResponse> {
        if cx.offered_streams() > 0 {
            for (incoming, sender) in cx.accept_streams::<Raw, Bytes>(StreamOptions::default())? {
                tokio::spawn(echo_stream(incoming, sender));
            }
        }
        cx.reply_options().attachment = cx.attachment().clone();
        Ok(EchoResponse { message: request.message, ..EchoResponse::default() })
    }
}

/// Sends back each message of a stream, until it ends.
async fn echo_stream(mut incoming: Streaming<Bytes>, sender: Sender<Bytes>) -> Result<()> {
    while let Some(message) = incoming.message().await? {
        // The client of brpc's example has no message handler, and accepts no messages.
        if !sender.is_closed() {
            sender.send(message).await?;
        }
    }
    Ok(())
}

use std::future::pending;

use polyrpc::client::RawCall;
use polyrpc::codec::Body;
use polyrpc::streaming::StreamOptions;
use polyrpc::{Format, Json, Status};
use serde_json::value::RawValue;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use super::call::{ReceivedReply, Trial, TrialResult, hide_secrets};
use crate::observed::ObservedServer;

/// Maximum number of received messages.
const MAX_MESSAGES: usize = 1_000;

/// Total length of the messages that are received, in bytes.
const MAX_TOTAL_LEN: usize = 256 << 10;

impl Trial {
    /// Makes a call that streams, and sends the messages that it receives to `lines`: each is one line of JSON.
    ///
    /// It ends when the server ends the call, when its time is over, or after a bounded number of messages and bytes.
    pub(crate) async fn stream(&self, server: &ObservedServer, lines: Sender<String>) -> TrialResult {
        self.record(async {
            let exchange = timeout(self.timeout, self.exchange(server, lines));
            exchange.await.unwrap_or_else(|_| Err(Status::deadline_exceeded("the time of the form is over")))
        })
        .await
    }

    async fn exchange(
        &self,
        server: &ObservedServer,
        lines: Sender<String>,
    ) -> Result<ReceivedReply, Status> {
        let messages = self.messages()?;
        let client = self.client(server)?;
        // Streams of brpc are attached to a call, which has a message and a reply of its own.
        let attaches = self.protocol == "baidu-std";
        let (messages, call) = match (&messages[..], attaches && !self.stream_type.client_streaming) {
            ([message], true) => {
                // The only message is part of the call, which is answered before the stream continues.
                let (body, stream) = (self.body(message.clone()), StreamOptions::default());
                let (_, call) = client.open_stream_raw(&self.target, body, self.options(), stream).await?;
                (Vec::new(), call)
            }
            _ => (messages, client.open_raw(&self.target, self.options(), format()).await?),
        };
        converse(call, messages, lines).await
    }

    /// Returns the messages to send: JSON values, one after the other.
    fn messages(&self) -> Result<Vec<String>, Status> {
        let values = serde_json::Deserializer::from_str(&self.message).into_iter::<Box<RawValue>>();
        let texts = values.map(|value| value.map(|value| value.get().to_owned()));
        let messages: Vec<_> = texts.collect::<Result<_, _>>().map_err(|error| {
            Status::invalid_argument(format!(
                "the messages are not JSON values, one after the other: {error}"
            ))
        })?;
        match self.stream_type.client_streaming || messages.len() == 1 {
            true => Ok(messages),
            false => Err(Status::invalid_argument("the method takes one message")),
        }
    }

    fn body(&self, message: String) -> Body {
        Body::new(format(), message)
    }
}

fn format() -> Format {
    Format::Json(Json::default())
}

/// Sends the messages and receives the others at the same time.
async fn converse(
    call: RawCall,
    messages: Vec<String>,
    lines: Sender<String>,
) -> Result<ReceivedReply, Status> {
    let (mut sender, mut receiver) = call.split();
    let sending = async move {
        for message in messages {
            if sender.send(message).await.is_err() {
                break;
            }
        }
        // A stream of brpc has no half-close: it stays open until the server ends it, or its time is over.
        let _ = sender.finish().await;
        pending::<()>().await;
    };
    let receiving = async {
        let metadata = hide_secrets(receiver.metadata().await?);
        let (mut count, mut bytes) = (0, 0);
        while let Some(message) = receiver.next().await? {
            (count, bytes) = (count + 1, bytes + message.bytes.len());
            if count > MAX_MESSAGES || bytes > MAX_TOTAL_LEN {
                let note = Some("There are more messages: the call was cancelled.");
                return Ok(ReceivedReply { metadata, note, ..ReceivedReply::default() });
            }
            let line = String::from_utf8_lossy(&message.bytes).replace(['\r', '\n'], " ");
            if lines.send(line).await.is_err() {
                return Err(Status::cancelled("the messages are no longer read"));
            }
        }
        Ok(ReceivedReply { metadata, ..ReceivedReply::default() })
    };
    tokio::select! {
        received = receiving => received,
        () = sending => Err(Status::internal("the sending half does not end")),
    }
}

//! Streaming calls. A stream of a caller stays open from call to call; other streams are a call each.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use polyrpc::client::{CallOptions, RawCall, Result};
use polyrpc::codec::Body;
use polyrpc::streaming::StreamOptions;
use polyrpc::{Client, Status};
use polyrpc_core::protocol::Streams;
use tokio::time::timeout;

use crate::plan::{CallKind, Method};

/// Streams that wait for the next message of their caller.
#[derive(Default)]
pub(super) struct OpenStreams(Mutex<HashMap<u32, RawCall>>);

impl OpenStreams {
    /// Makes a streaming call for caller `slot`, within the method's timeout.
    pub(super) async fn call(&self, client: &Client, method: &Method, body: &Body, slot: u32) -> Result<()> {
        let Some(limit) = method.options.timeout else { return self.make(client, method, body, slot).await };
        // The client's own timeout covers only the opening call of a stream that is attached to it, and none of the
        // messages of a stream that stays open.
        match timeout(limit, self.make(client, method, body, slot)).await {
            Ok(made) => made,
            Err(_) => {
                Err(Status::deadline_exceeded(format!("the stream did not answer within {limit:?}")).into())
            }
        }
    }

    async fn make(&self, client: &Client, method: &Method, body: &Body, slot: u32) -> Result<()> {
        match method.kind {
            CallKind::Bidi => {
                let kept = self.lock().remove(&slot);
                let mut stream = match kept {
                    Some(stream) => stream,
                    None => open(client, method, body).await?,
                };
                stream.send(body.bytes.clone()).await?;
                match stream.next().await? {
                    Some(_) => drop(self.lock().insert(slot, stream)),
                    None => return Err(Status::unavailable("the server ended the stream").into()),
                }
                Ok(())
            }
            CallKind::ClientStream { messages } => {
                let mut call = client.open_raw(&method.target, method.options.clone(), body.format).await?;
                for _ in 0..messages {
                    if call.send(body.bytes.clone()).await.is_err() {
                        // The response has the reason.
                        break;
                    }
                }
                // A call that has already ended cannot be ended again.
                let _ = call.finish_sending().await;
                receive(&mut call).await
            }
            CallKind::ServerStream | CallKind::Unary | CallKind::Oneway => {
                let mut call = if is_attached(client) {
                    open_attached(client, method, body, method.options.clone()).await?
                } else {
                    let mut call =
                        client.open_raw(&method.target, method.options.clone(), body.format).await?;
                    if call.send(body.bytes.clone()).await.is_ok() {
                        let _ = call.finish_sending().await;
                    }
                    call
                };
                receive(&mut call).await
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, RawCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a bidirectional stream. Where streams are attached to a call (brpc), the call carries the message too.
///
/// The stream itself has no deadline: it stays open for the whole load.
async fn open(client: &Client, method: &Method, body: &Body) -> Result<RawCall> {
    let options = CallOptions { timeout: None, ..method.options.clone() };
    match is_attached(client) {
        true => open_attached(client, method, body, options).await,
        false => client.open_raw(&method.target, options, body.format).await,
    }
}

async fn open_attached(
    client: &Client,
    method: &Method,
    body: &Body,
    options: CallOptions,
) -> Result<RawCall> {
    let target = &method.target;
    let (_, call) = client.open_stream_raw(target, body.clone(), options, StreamOptions::default()).await?;
    Ok(call)
}

fn is_attached(client: &Client) -> bool {
    client.protocol().descriptor().capabilities.streams == Streams::Attached
}

/// Receives all messages. A response without any is an answer too.
async fn receive(call: &mut RawCall) -> Result<()> {
    while call.next().await?.is_some() {}
    Ok(())
}

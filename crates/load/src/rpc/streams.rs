//! Streaming calls. A stream of a caller stays open from call to call; other streams are a call each.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use polyrpc::client::{RawCall, Result};
use polyrpc::codec::Body;
use polyrpc::streaming::StreamOptions;
use polyrpc::{Client, Status};
use polyrpc_core::protocol::Streams;

use crate::plan::{Method, Shape};

/// Streams that wait for the next message of their caller.
#[derive(Default)]
pub(super) struct OpenStreams(Mutex<HashMap<u32, RawCall>>);

impl OpenStreams {
    /// Makes a streaming call for caller `slot`.
    pub(super) async fn call(&self, client: &Client, method: &Method, body: &Body, slot: u32) -> Result<()> {
        match method.shape {
            Shape::Bidi => {
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
            Shape::ClientStream { messages } => {
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
            Shape::ServerStream | Shape::Unary | Shape::Oneway => {
                let mut call = if is_attached(client) {
                    open_attached(client, method, body).await?
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
async fn open(client: &Client, method: &Method, body: &Body) -> Result<RawCall> {
    match is_attached(client) {
        true => open_attached(client, method, body).await,
        false => client.open_raw(&method.target, method.options.clone(), body.format).await,
    }
}

async fn open_attached(client: &Client, method: &Method, body: &Body) -> Result<RawCall> {
    let (target, options) = (&method.target, method.options.clone());
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

//! Makes the calls of tools: calls of the server, over a connection within its process.

use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::server::Connector;
use polyrpc::{Client, Format, Json, Protocol, Result, Status};

use crate::tool::Tool;

/// Result of a tool.
#[derive(Debug)]
pub(crate) enum Reply {
    Message(Bytes),
    Messages { messages: Vec<Bytes>, truncated: bool },
}

/// Limits of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) timeout: Duration,
    /// Number of messages of a stream.
    pub(crate) messages: usize,
    /// Length of all messages in bytes.
    pub(crate) length: usize,
}

/// Calls the method of a tool with a message. Dropping the future cancels the call.
///
/// Each call has a connection of its own, so that calls of different callers do not wait for each other.
pub(crate) async fn call(
    connector: &Connector,
    tool: &Tool,
    message: String,
    options: CallOptions,
    bounds: Bounds,
) -> Result<Reply, Status> {
    let calling = async {
        match tool.streams() {
            true => stream(connector, tool, message, options, bounds).await,
            false => unary(connector, tool, message, options, bounds).await,
        }
    };
    // A deadline sent to the server may end the call too late.
    match tokio::time::timeout(bounds.timeout, calling).await {
        Ok(result) => result,
        Err(_) => Err(Status::deadline_exceeded("the tool took too long")),
    }
}

async fn unary(
    connector: &Connector,
    tool: &Tool,
    message: String,
    options: CallOptions,
    bounds: Bounds,
) -> Result<Reply, Status> {
    let client = client(connector, Protocol::Http)?;
    let reply = client.call_raw(tool.target(), Body::new(FORMAT, message), options).await?;
    let message = reply.message.bytes;
    match message.len() > bounds.length {
        true => Err(too_long(bounds.length)),
        false => Ok(Reply::Message(message)),
    }
}

async fn stream(
    connector: &Connector,
    tool: &Tool,
    message: String,
    options: CallOptions,
    bounds: Bounds,
) -> Result<Reply, Status> {
    let client = client(connector, Protocol::Grpc)?;
    let mut call = client.open_raw(tool.target(), options, FORMAT).await?;
    // If the call has ended, the reason follows.
    let _ = call.send(message).await;
    let _ = call.finish_sending().await;
    let (mut messages, mut length) = (Vec::new(), 0);
    while let Some(message) = call.next().await? {
        length += message.bytes.len();
        if messages.len() == bounds.messages || length > bounds.length {
            return Ok(Reply::Messages { messages, truncated: true });
        }
        messages.push(message.bytes);
    }
    Ok(Reply::Messages { messages, truncated: false })
}

fn client(connector: &Connector, protocol: Protocol) -> Result<Client, Status> {
    connector.client(protocol).map_err(|error| Status::unavailable(error.to_string()))
}

#[cold]
fn too_long(limit: usize) -> Status {
    Status::resource_exhausted(format!("the result is longer than {limit} bytes"))
}

const FORMAT: Format = Format::Json(Json::Proto3);

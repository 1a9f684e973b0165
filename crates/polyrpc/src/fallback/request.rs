use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, mem};

use bytes::Bytes;
use polyrpc_core::{Format, Metadata, Status};
use polyrpc_wire::Protocol;

use crate::Result;
use crate::call::streaming::{Incoming, Sender, StreamOptions, Streaming};
use crate::call::{AcceptedStreams, CallOptions, Context};
use crate::codec::{Body, Raw};

/// Call of a service or method that is not registered.
pub struct RawRequest {
    cx: Context,
    messages: Messages,
    accepted: AcceptedStreamSlot,
}

/// Accepted streams, on their way to the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct AcceptedStreamSlot(Arc<Mutex<Option<AcceptedStreams>>>);

impl AcceptedStreamSlot {
    pub(super) fn take(&self) -> Option<AcceptedStreams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, accepted: Option<AcceptedStreams>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = accepted;
    }
}

enum Messages {
    One(Body),
    Several(Streaming<Bytes>),
}

impl RawRequest {
    pub(super) fn one(cx: Context, body: Body) -> (Self, AcceptedStreamSlot) {
        Self::new(cx, Messages::One(body))
    }

    pub(super) fn several(cx: Context, incoming: Incoming) -> (Self, AcceptedStreamSlot) {
        Self::new(cx, Messages::Several(Streaming::from_incoming(incoming, Ok)))
    }

    fn new(cx: Context, messages: Messages) -> (Self, AcceptedStreamSlot) {
        let accepted = AcceptedStreamSlot::default();
        (Self { cx, messages, accepted: accepted.clone() }, accepted)
    }

    /// Service name, as sent by the caller; empty if there is none.
    pub fn service(&self) -> &str {
        self.cx.service()
    }

    /// Method or function name, as sent by the caller; `#` and a number if callers send no name.
    pub fn method(&self) -> &str {
        self.cx.method()
    }

    /// Both names as accepted by a [`Client`](crate::Client): `Service/Method`, or the function alone.
    pub fn target(&self) -> String {
        match self.service() {
            "" => self.method().to_owned(),
            service => format!("{service}/{}", self.method()),
        }
    }

    /// Protocol of the call.
    pub fn protocol(&self) -> Protocol {
        self.cx.protocol()
    }

    /// Format of the messages.
    pub fn format(&self) -> Format {
        self.cx.format()
    }

    /// User fields, metadata, headers.
    pub fn metadata(&self) -> &Metadata {
        self.cx.metadata()
    }

    /// Attachment next to the message (baidu_std, fb_rpc).
    pub fn attachment(&self) -> &Bytes {
        self.cx.attachment()
    }

    /// Remaining time until the deadline, if the caller sent one.
    pub fn remaining(&self) -> Option<Duration> {
        self.cx.remaining()
    }

    /// Whether the call is one-way; the response is then discarded.
    pub fn is_oneway(&self) -> bool {
        self.cx.oneway()
    }

    /// Whether any number of messages may be received and sent (gRPC, gRPC-Web): a unary call cannot be distinguished
    /// from a streaming one.
    pub fn is_streamed(&self) -> bool {
        matches!(self.messages, Messages::Several(_))
    }

    /// Number of streams that the caller offers to attach to the call (brpc).
    pub fn offered_streams(&self) -> usize {
        self.cx.offered_streams()
    }

    /// Context of the call: peer, connection, deadline, [extensions](Context::extension) of layers.
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// Returns the only message of the call, not decoded.
    ///
    /// # Errors
    ///
    /// [`Unimplemented`](crate::Code::Unimplemented) if there is none, or more than one; otherwise the reason why it
    /// cannot be read.
    pub async fn body(&mut self) -> Result<Body> {
        let format = self.format();
        let positional = self.cx.positional();
        let messages = match &mut self.messages {
            Messages::One(body) => return Ok(mem::replace(body, Body::new(format, Bytes::new()))),
            Messages::Several(messages) => messages,
        };
        let Some(bytes) = messages.message().await? else { return Err(miscounted("none came")) };
        match messages.message().await? {
            None => Ok(Body { positional, ..Body::new(format, bytes) }),
            Some(_) => Err(miscounted("more came")),
        }
    }

    /// Returns the messages of the call as a stream, not decoded. A single message is a stream of one.
    pub fn messages(&mut self) -> Streaming<Bytes> {
        match mem::replace(&mut self.messages, Messages::Several(Streaming::empty())) {
            Messages::One(body) => Streaming::once(body.bytes),
            Messages::Several(messages) => messages,
        }
    }

    /// Returns the options of a client's call that forwards this one: metadata, attachment, remaining time, and whether
    /// it is one-way. A credential outside the metadata is not included: it was meant for this server.
    pub fn options(&self) -> CallOptions {
        CallOptions {
            metadata: self.metadata().clone(),
            attachment: self.attachment().clone(),
            timeout: self.remaining(),
            format: Some(self.format()),
            oneway: self.is_oneway(),
            ..CallOptions::default()
        }
    }

    /// Accepts every stream that the caller offers to attach to the call, as
    /// [`Context::accept_streams`](crate::Context::accept_streams) does; they carry bytes.
    ///
    /// # Errors
    ///
    /// See [`Context::accept_streams`](crate::Context::accept_streams).
    pub fn accept_streams(
        &mut self,
        options: StreamOptions,
    ) -> Result<Vec<(Streaming<Bytes>, Sender<Bytes>)>> {
        let streams = self.cx.accept_streams::<Raw, Bytes>(options)?;
        self.accepted.put(self.cx.take_accepted());
        Ok(streams)
    }
}

#[cold]
fn miscounted(why: &str) -> crate::Failure {
    Status::unimplemented(format!("expected one message: {why}")).into()
}

impl fmt::Debug for RawRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRequest")
            .field("service", &self.service())
            .field("method", &self.method())
            .field("protocol", &self.protocol())
            .finish_non_exhaustive()
    }
}

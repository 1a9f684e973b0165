//! A call as seen by layers.

use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc_core::{Metadata, Status};
use polyrpc_wire::Protocol;

use super::Side;
use crate::call::{CallOptions, Context, OutgoingCall, Peer, StreamType};
use crate::codec::{Body, Codec};
use crate::runtime::now;

/// A call that passes through layers.
#[derive(Debug)]
pub struct Call {
    stream_type: StreamType,
    body: Body,
    parts: SideParts,
}

/// The parts that exist on one side only.
#[derive(Debug)]
enum SideParts {
    Server(Context),
    Client(Box<OutboundCall>),
}

/// A call by a client.
#[derive(Debug, Clone)]
struct OutboundCall {
    service: String,
    method: String,
    options: CallOptions,
    protocol: Protocol,
}

impl Call {
    /// Creates a call received by a server.
    pub(crate) fn incoming(cx: Context, body: Body, stream_type: StreamType) -> Self {
        Self { stream_type, body, parts: SideParts::Server(cx) }
    }

    /// Creates a call by a client.
    pub(crate) fn outgoing(call: OutgoingCall<'_>, stream_type: StreamType) -> Self {
        let OutgoingCall { service, method, body, options, protocol } = call;
        let (service, method) = (service.to_owned(), method.to_owned());
        Self {
            stream_type,
            body,
            parts: SideParts::Client(Box::new(OutboundCall { service, method, options, protocol })),
        }
    }

    /// Returns the side on which the layer runs.
    pub fn side(&self) -> Side {
        match self.parts {
            SideParts::Server(_) => Side::Server,
            SideParts::Client(_) => Side::Client,
        }
    }

    /// Returns the directions in which it streams messages.
    pub fn stream_type(&self) -> StreamType {
        self.stream_type
    }

    /// Returns the protocol that carries it.
    pub fn protocol(&self) -> Protocol {
        match &self.parts {
            SideParts::Server(cx) => cx.protocol(),
            SideParts::Client(leaving) => leaving.protocol,
        }
    }

    /// Returns the service; empty for a plain function. On a server it is the name under which it was added.
    pub fn service(&self) -> &str {
        match &self.parts {
            SideParts::Server(cx) => cx.service(),
            SideParts::Client(leaving) => &leaving.service,
        }
    }

    /// Returns the method, the function's name, or the topic of a subscription.
    pub fn method(&self) -> &str {
        match &self.parts {
            SideParts::Server(cx) => cx.method(),
            SideParts::Client(leaving) => &leaving.method,
        }
    }

    /// Redirects the call to another method.
    ///
    /// # Errors
    ///
    /// On a server: the method was found already; [`Server::alias`](crate::Server::alias) adds names.
    pub fn redirect(&mut self, service: &str, method: &str) -> Result<(), Status> {
        match &mut self.parts {
            SideParts::Client(leaving) => {
                (leaving.service, leaving.method) = (service.to_owned(), method.to_owned());
                Ok(())
            }
            SideParts::Server(_) => {
                Err(Status::internal("a layer of a server cannot redirect a call: its method was found"))
            }
        }
    }

    /// Returns user fields, metadata or headers of the request, whatever the protocol calls them.
    pub fn metadata(&self) -> &Metadata {
        match &self.parts {
            SideParts::Server(cx) => cx.metadata(),
            SideParts::Client(leaving) => &leaving.options.metadata,
        }
    }

    /// Returns the mutable metadata.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        match &mut self.parts {
            SideParts::Server(cx) => cx.metadata_mut(),
            SideParts::Client(leaving) => &mut leaving.options.metadata,
        }
    }

    /// Returns the encoded request, not compressed. It is empty if the caller streams its messages, which layers do not
    /// see: check [`stream_type`](Self::stream_type).
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the mutable request. Replacing the empty body of a stream has no effect.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Decodes the request.
    ///
    /// # Errors
    ///
    /// If the bytes are not a `T`.
    pub fn decode<C: Codec<T>, T>(&self) -> Result<T, Status> {
        C::decode(self.body.clone(), None)
    }

    /// Replaces the request, in the same format.
    ///
    /// # Errors
    ///
    /// If the codec cannot encode it.
    pub fn set_message<C: Codec<T>, T>(&mut self, message: T) -> Result<(), Status> {
        self.body = C::encode_request(message, self.body.format, None)?;
        Ok(())
    }

    /// Returns the attachment of the request.
    pub fn attachment(&self) -> &Bytes {
        match &self.parts {
            SideParts::Server(cx) => cx.attachment(),
            SideParts::Client(leaving) => &leaving.options.attachment,
        }
    }

    /// Returns how long the caller still waits; `None`: forever, as far as is known.
    pub fn remaining(&self) -> Option<Duration> {
        match &self.parts {
            SideParts::Server(cx) => cx.remaining(),
            SideParts::Client(leaving) => leaving.options.timeout,
        }
    }

    /// On a client: sets a deadline, unless the call has an earlier one; `None` changes nothing. On a server the
    /// deadline is the caller's.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        if let (SideParts::Client(leaving), Some(deadline)) = (&mut self.parts, deadline) {
            let remaining = deadline.saturating_duration_since(now());
            let timeout = leaving.options.timeout.map_or(remaining, |timeout| timeout.min(remaining));
            leaving.options.timeout = Some(timeout);
        }
    }

    /// Returns the caller; `None` on a client.
    pub fn peer(&self) -> Option<&Peer> {
        self.context().map(Context::peer)
    }

    /// On a server: returns the context that the handler will receive. Layers may insert values for it
    /// ([`Context::insert_extension`]).
    pub fn context(&self) -> Option<&Context> {
        match &self.parts {
            SideParts::Server(cx) => Some(cx),
            SideParts::Client(_) => None,
        }
    }

    /// Returns the mutable context.
    pub fn context_mut(&mut self) -> Option<&mut Context> {
        match &mut self.parts {
            SideParts::Server(cx) => Some(cx),
            SideParts::Client(_) => None,
        }
    }

    /// On a client: returns the other options of the call.
    pub fn options(&self) -> Option<&CallOptions> {
        match &self.parts {
            SideParts::Server(_) => None,
            SideParts::Client(leaving) => Some(&leaving.options),
        }
    }

    /// Returns the mutable options.
    pub fn options_mut(&mut self) -> Option<&mut CallOptions> {
        match &mut self.parts {
            SideParts::Server(_) => None,
            SideParts::Client(leaving) => Some(&mut leaving.options),
        }
    }

    /// Clones the call, to be [made again](super::Next::try_clone); `None` on a server, and for streaming calls.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.parts {
            SideParts::Client(leaving) if self.stream_type.is_unary() => Some(Self {
                stream_type: self.stream_type,
                body: self.body.clone(),
                parts: SideParts::Client(leaving.clone()),
            }),
            _ => None,
        }
    }

    /// Converts into the method's arguments.
    ///
    /// # Errors
    ///
    /// On a client.
    pub(crate) fn into_incoming(self) -> Result<(Context, Body), Status> {
        match self.parts {
            SideParts::Server(cx) => Ok((cx, self.body)),
            SideParts::Client(_) => Err(wrong_side()),
        }
    }

    /// Takes the call that the client sends.
    ///
    /// # Errors
    ///
    /// On a server.
    pub(crate) fn take_outgoing(&mut self) -> Result<OutgoingCall<'_>, Status> {
        let SideParts::Client(leaving) = &mut self.parts else { return Err(wrong_side()) };
        let OutboundCall { service, method, options, protocol } = &mut **leaving;
        let (body, options) = (self.body.clone(), std::mem::take(options));
        Ok(OutgoingCall { service, method, body, options, protocol: *protocol })
    }
}

/// A layer has passed a call of one side to the next step of the other.
#[cold]
fn wrong_side() -> Status {
    Status::internal("a layer mixed up the calls of a client and of a server")
}

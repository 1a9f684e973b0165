//! A call as layers see it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc_core::{Metadata, Status};
use polyrpc_wire::Protocol;

use super::Side;
use crate::call::{CallOptions, Context, OutgoingCall, Peer, StreamType};
use crate::codec::{Body, Codec};

/// A call that passes layers.
#[derive(Debug)]
pub struct Call {
    shape: StreamType,
    body: Body,
    place: Place,
}

/// What belongs to one side only.
#[derive(Debug)]
enum Place {
    Server(Context),
    Client(Box<OutboundCall>),
}

/// A call that leaves a client.
#[derive(Debug, Clone)]
struct OutboundCall {
    service: String,
    method: String,
    options: CallOptions,
    protocol: Protocol,
}

impl Call {
    /// A call that came to a server.
    pub(crate) fn incoming(cx: Context, body: Body, shape: StreamType) -> Self {
        Self { shape, body, place: Place::Server(cx) }
    }

    /// A call that leaves a client.
    pub(crate) fn outgoing(call: OutgoingCall<'_>, shape: StreamType) -> Self {
        let OutgoingCall { service, method, body, options, protocol } = call;
        let (service, method) = (service.to_owned(), method.to_owned());
        Self {
            shape,
            body,
            place: Place::Client(Box::new(OutboundCall { service, method, options, protocol })),
        }
    }

    /// On which side the layer stands.
    pub fn side(&self) -> Side {
        match self.place {
            Place::Server(_) => Side::Server,
            Place::Client(_) => Side::Client,
        }
    }

    /// In which directions it has several messages.
    pub fn shape(&self) -> StreamType {
        self.shape
    }

    /// The protocol that carries it.
    pub fn protocol(&self) -> Protocol {
        match &self.place {
            Place::Server(cx) => cx.protocol(),
            Place::Client(leaving) => leaving.protocol,
        }
    }

    /// The service; empty for a plain function. On a server it is the name under which it was added.
    pub fn service(&self) -> &str {
        match &self.place {
            Place::Server(cx) => cx.service(),
            Place::Client(leaving) => &leaving.service,
        }
    }

    /// The method, the function's name, or what is subscribed to.
    pub fn method(&self) -> &str {
        match &self.place {
            Place::Server(cx) => cx.method(),
            Place::Client(leaving) => &leaving.method,
        }
    }

    /// Calls another method instead.
    ///
    /// # Errors
    ///
    /// On a server: the method was found already; [`Server::alias`](crate::Server::alias) gives names.
    pub fn redirect(&mut self, service: &str, method: &str) -> Result<(), Status> {
        match &mut self.place {
            Place::Client(leaving) => {
                (leaving.service, leaving.method) = (service.to_owned(), method.to_owned());
                Ok(())
            }
            Place::Server(_) => {
                Err(Status::internal("a layer of a server cannot redirect a call: its method was found"))
            }
        }
    }

    /// User fields, metadata, headers of the request, by whatever name the protocol has for them.
    pub fn metadata(&self) -> &Metadata {
        match &self.place {
            Place::Server(cx) => cx.metadata(),
            Place::Client(leaving) => &leaving.options.metadata,
        }
    }

    /// The same, to be changed.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        match &mut self.place {
            Place::Server(cx) => cx.metadata_mut(),
            Place::Client(leaving) => &mut leaving.options.metadata,
        }
    }

    /// The encoded request, not compressed. It is empty where the caller sends its messages one by one, which layers do
    /// not see: [`shape`](Self::shape) tells.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The same, to be changed. What is put in place of an empty body of streams is not sent.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// The request as a value.
    ///
    /// # Errors
    ///
    /// When the bytes are no `T`.
    pub fn decode<C: Codec<T>, T>(&self) -> Result<T, Status> {
        C::decode(self.body.clone(), None)
    }

    /// Puts this request in place of the one it had, in the same format.
    ///
    /// # Errors
    ///
    /// When the codec cannot write it.
    pub fn set_message<C: Codec<T>, T>(&mut self, message: T) -> Result<(), Status> {
        self.body = C::encode_request(message, self.body.format, None)?;
        Ok(())
    }

    /// Bytes beside the request.
    pub fn attachment(&self) -> &Bytes {
        match &self.place {
            Place::Server(cx) => cx.attachment(),
            Place::Client(leaving) => &leaving.options.attachment,
        }
    }

    /// How long the caller still waits; `None`: for ever, as far as is known.
    pub fn remaining(&self) -> Option<Duration> {
        match &self.place {
            Place::Server(cx) => cx.remaining(),
            Place::Client(leaving) => leaving.options.timeout,
        }
    }

    /// On a client: lets the call wait no longer than until then. On a server the deadline is the caller's.
    pub fn end_by(&mut self, deadline: Option<Instant>) {
        if let Place::Client(leaving) = &mut self.place {
            // The clock of the runtime, which tests may stop.
            let now = tokio::time::Instant::now().into_std();
            leaving.options.timeout = deadline.map(|deadline| deadline.saturating_duration_since(now));
        }
    }

    /// Who called; not known to who calls.
    pub fn peer(&self) -> Option<&Peer> {
        self.context().map(Context::peer)
    }

    /// On a server: what the handler will know of the call. Layers may leave things there
    /// ([`Context::attach`]).
    pub fn context(&self) -> Option<&Context> {
        match &self.place {
            Place::Server(cx) => Some(cx),
            Place::Client(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn context_mut(&mut self) -> Option<&mut Context> {
        match &mut self.place {
            Place::Server(cx) => Some(cx),
            Place::Client(_) => None,
        }
    }

    /// On a client: what else the call says.
    pub fn options(&self) -> Option<&CallOptions> {
        match &self.place {
            Place::Server(_) => None,
            Place::Client(leaving) => Some(&leaving.options),
        }
    }

    /// The same, to be changed.
    pub fn options_mut(&mut self) -> Option<&mut CallOptions> {
        match &mut self.place {
            Place::Server(_) => None,
            Place::Client(leaving) => Some(&mut leaving.options),
        }
    }

    /// The same call once more, to be [made again](super::Next::try_clone); `None` on a server, and where messages come one
    /// by one.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.place {
            Place::Client(leaving) if self.shape.is_unary() => Some(Self {
                shape: self.shape,
                body: self.body.clone(),
                place: Place::Client(leaving.clone()),
            }),
            _ => None,
        }
    }

    /// Takes out what the method is given.
    ///
    /// # Errors
    ///
    /// On a client.
    pub(crate) fn into_incoming(self) -> Result<(Context, Body), Status> {
        match self.place {
            Place::Server(cx) => Ok((cx, self.body)),
            Place::Client(_) => Err(wrong_side()),
        }
    }

    /// Takes out what the client sends.
    ///
    /// # Errors
    ///
    /// On a server.
    pub(crate) fn take_outgoing(&mut self) -> Result<OutgoingCall<'_>, Status> {
        let Place::Client(leaving) = &mut self.place else { return Err(wrong_side()) };
        let OutboundCall { service, method, options, protocol } = &mut **leaving;
        let (body, options) = (self.body.clone(), std::mem::take(options));
        Ok(OutgoingCall { service, method, body, options, protocol: *protocol })
    }
}

/// A layer has passed a call of one side to what follows on the other.
#[cold]
fn wrong_side() -> Status {
    Status::internal("a layer mixed up the calls of a client and of a server")
}

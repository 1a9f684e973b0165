//! From a typed request to a protocol-neutral call and back: the same for every kind of client.

use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::protocol::{Dialect, Streams};
use polyrpc_core::{Call, Code, Compression, Credential, Descriptor, Fault, Format, Head, Reply, Status};
use polyrpc_payload::schema;
use polyrpc_wire::Protocol;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::cluster::RoutingOptions;
use super::data_connector::DataConnector;
use super::unsupported_warnings::UnsupportedWarnings;
use crate::call::{CallOptions, Response};
use crate::codec::{Body, Codec, decode_plain, encode_arguments, encode_plain, uncompressed};
use crate::propagation;

/// What a client does when a call does not say otherwise.
#[derive(Debug, Clone)]
pub(super) struct CallDefaults {
    pub(super) protocol: Protocol,
    /// What of it is spoken.
    pub(super) dialect: Dialect,
    /// What is known of the protocol.
    pub(super) descriptor: &'static Descriptor,
    pub(super) timeout: Option<Duration>,
    pub(super) format: Option<Format>,
    pub(super) compression: Compression,
    /// Bytes of a reply after decompression.
    pub(super) max_decompressed: usize,
    /// A server may say of a call that it never looked at it: calls are kept, to be sent elsewhere.
    pub(super) retains_calls: bool,
    /// Calls may be made twice.
    pub(super) idempotent: bool,
    /// What of a call has no place in the protocol.
    pub(super) unsupported: Option<UnsupportedWarnings>,
    /// How data connections are made.
    pub(super) near: DataConnector,
    /// What telemetry names as the server.
    #[cfg(feature = "otel")]
    pub(super) target: crate::call::Target,
}

impl CallDefaults {
    /// Whether the protocol has streams only beside a call, which is answered before they go on (brpc).
    pub(super) fn attaches_streams(&self) -> bool {
        self.descriptor.capabilities.streams == Streams::Beside
    }

    /// Writes a message as the call, the client, or codec and protocol want it.
    pub(super) fn encode<C: Codec<T>, T>(
        &self,
        message: T,
        schema: Option<&schema::Message>,
        options: &CallOptions,
    ) -> Result<Body, Status> {
        let format = match C::RPCX {
            Some(number) if self.protocol == Protocol::Rpcx => {
                options.format.or(self.format).unwrap_or(number)
            }
            _ => self.format(C::PREFERRED, options),
        };
        C::encode_request(message, format, schema)
    }

    /// Writes plain arguments, which need not be readable.
    pub(super) fn encode_plain(
        &self,
        arguments: &(impl Serialize + ?Sized),
        options: &CallOptions,
    ) -> Result<Body, Status> {
        let format = self.format(Format::MessagePack, options);
        match self.descriptor.capabilities.positional_arguments {
            true => encode_arguments(arguments, format),
            false => Ok(Body::new(format, encode_plain(arguments, format)?)),
        }
    }

    /// How messages are written that come one by one.
    pub(super) fn format(&self, codec: Format, options: &CallOptions) -> Format {
        options.format.or(self.format).unwrap_or_else(|| self.preferred(codec))
    }

    /// What matters to where the call goes.
    pub(super) fn routing_options(&self, options: &CallOptions) -> RoutingOptions {
        RoutingOptions {
            idempotent: options.idempotent || self.idempotent,
            key: options.key,
            wait_for_ready: options.wait_for_ready,
        }
    }

    /// The call to send, if its messages follow one by one. The client's default time-out does not apply, since it says
    /// nothing of how long all messages may take.
    pub(super) fn opening<'a>(
        &self,
        service: &'a str,
        method: &'a str,
        format: Format,
        options: CallOptions,
    ) -> Result<Call<'a>, Status> {
        let timeout = options.timeout;
        let call = self.bounded(service, method, Body::new(format, Bytes::new()), options, timeout)?;
        Ok(Call { oneway: false, ..call })
    }

    /// The call to send; it has what it inherits from the call within which it is made.
    ///
    /// # Errors
    ///
    /// If the deadline of that call has passed, or the time-out is zero.
    pub(super) fn call<'a>(
        &self,
        service: &'a str,
        method: &'a str,
        body: Body,
        options: CallOptions,
    ) -> Result<Call<'a>, Status> {
        let timeout = options.timeout.or(self.timeout);
        self.bounded(service, method, body, options, timeout)
    }

    fn bounded<'a>(
        &self,
        service: &'a str,
        method: &'a str,
        body: Body,
        mut options: CallOptions,
        timeout: Option<Duration>,
    ) -> Result<Call<'a>, Status> {
        if options.cancel.is_some() {
            return Err(no_handle());
        }
        let inherited = propagation::current();
        let timeout = inherited.bound(timeout)?;
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(no_time());
        }
        inherited.inject(&mut options.metadata, self.protocol);
        let head = Head {
            format: body.format,
            compression: options.compression.unwrap_or(self.compression),
            checksum: options.checksum,
            positional: body.positional,
            metadata: options.metadata,
            plain_http: false,
        };
        let call = Call {
            service,
            method,
            body: body.bytes,
            attachment: options.attachment,
            head,
            timeout,
            oneway: options.oneway,
            credential: Credential::Call(options.credential),
            authenticated: false,
            spoiled: None,
        };
        if let Some(unsaid) = &self.unsupported {
            unsaid.warn_unsupported(&call, &inherited);
        }
        Ok(call)
    }

    /// A reply with its compression undone; a call that gets none has an empty one in its own format.
    pub(super) fn open(&self, reply: Option<Reply>, format: Format) -> Result<Response<Body>, Status> {
        let Some(Reply { result, head, attachment, trailers }) = reply else {
            return Ok(Response::new(Body::new(format, Bytes::new())));
        };
        let body = match result {
            Ok(body) => body,
            Err(status) => return Err(status.received_with(head.metadata, trailers)),
        };
        let bytes = uncompressed(head.compression, body, self.max_decompressed)
            .map_err(|status| self.unreadable(&status))?;
        let message = Body::new(head.format, bytes);
        Ok(Response { message, metadata: head.metadata, trailers, attachment })
    }

    /// The failure of a reply whose compression cannot be undone. That it would be too long has a code of its own in gRPC
    /// (`doc/statuscodes.md`).
    #[cold]
    fn unreadable(&self, status: &Status) -> Status {
        let has_code = self.descriptor.capabilities.resource_exhausted;
        match status.code() {
            Code::ResourceExhausted if has_code => {
                Status::resource_exhausted(format!("unreadable reply: {}", status.message()))
            }
            _ => unreadable(status),
        }
    }

    /// The format in which this protocol carries what the codec prefers.
    pub(super) fn preferred(&self, codec: Format) -> Format {
        self.dialect.format.unwrap_or_else(|| (self.descriptor.prefer)(codec))
    }
}

impl Response<Body> {
    /// Reads the message.
    pub(super) fn decode<C: Codec<T>, T>(
        self,
        schema: Option<&schema::Message>,
    ) -> Result<Response<T>, Status> {
        let Self { message, metadata, trailers, attachment } = self;
        let message = C::decode(message, schema).map_err(|status| unreadable(&status))?;
        Ok(Response { message, metadata, trailers, attachment })
    }

    /// Reads the message as a plain type, and leaves what came beside it.
    pub(super) fn read_plain<T: DeserializeOwned + 'static>(self) -> Result<Response<T>, Status> {
        let Self { message, metadata, trailers, attachment } = self;
        let message = decode_plain(&message).map_err(|status| unreadable(&status))?;
        Ok(Response { message, metadata, trailers, attachment })
    }

    /// Reads the message as a plain type.
    pub(super) fn decode_plain<T: DeserializeOwned + 'static>(self) -> Result<T, Status> {
        decode_plain(&self.message).map_err(|status| unreadable(&status))
    }
}

/// A call without time is not sent: it would fail wherever it arrives.
#[cold]
fn no_time() -> Status {
    Status::deadline_exceeded("the call has a time-out of zero")
}

/// Whoever makes calls that heed a handle has taken it out by now.
#[cold]
fn no_handle() -> Status {
    Status::invalid_argument("a call of this kind cannot be cancelled by a handle: drop it instead")
        .with_fault(Fault::Us)
}

/// The reply is at fault, not the one who called.
#[cold]
pub(super) fn unreadable(status: &Status) -> Status {
    Status::internal(format!("unreadable reply: {}", status.message()))
}

/// When a call must have ended that may take so long, and no longer than the one that is being served.
pub(super) fn deadline(timeout: Option<Duration>) -> Result<Option<Instant>, Status> {
    Ok(propagation::current().bound(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout)))
}

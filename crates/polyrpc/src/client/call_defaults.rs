//! Conversion between typed requests and protocol-neutral calls, shared by all kinds of clients.

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
use crate::codec::{Body, Codec, decode_plain, decompress_body, encode_arguments, encode_plain};
use crate::propagation;

/// Defaults for options that a call does not set.
#[derive(Debug, Clone)]
pub(super) struct CallDefaults {
    pub(super) protocol: Protocol,
    /// Dialect of the protocol.
    pub(super) dialect: Dialect,
    /// Descriptor of the protocol.
    pub(super) descriptor: &'static Descriptor,
    pub(super) timeout: Option<Duration>,
    pub(super) format: Option<Format>,
    pub(super) compression: Compression,
    /// Maximum size of a reply after decompression in bytes.
    pub(super) max_decompressed: usize,
    /// A server may report that it has not processed a call: calls are retained, to be sent elsewhere.
    pub(super) retains_calls: bool,
    /// Calls are idempotent.
    pub(super) idempotent: bool,
    /// Warnings about options that the protocol does not support.
    pub(super) unsupported: Option<UnsupportedWarnings>,
    /// Connector of data connections.
    pub(super) near: DataConnector,
    /// Name of the server for telemetry.
    pub(super) target: crate::call::Target,
}

impl CallDefaults {
    /// Whether the protocol only has streams attached to a call, whose reply precedes their messages (brpc).
    pub(super) fn attaches_streams(&self) -> bool {
        self.descriptor.capabilities.streams == Streams::Attached
    }

    /// Encodes a message in the format set by the call, the client, or codec and protocol.
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

    /// Encodes plain arguments, whose type need not be decodable.
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

    /// Returns the format of streamed messages.
    pub(super) fn format(&self, codec: Format, options: &CallOptions) -> Format {
        options.format.or(self.format).unwrap_or_else(|| self.preferred_format(codec))
    }

    /// Returns the options that affect where the call is sent.
    pub(super) fn routing_options(&self, options: &CallOptions) -> RoutingOptions {
        RoutingOptions {
            idempotent: options.idempotent || self.idempotent,
            key: options.key,
            wait_for_ready: options.wait_for_ready,
        }
    }

    /// Creates a streaming call. The client's default timeout does not apply, since it does not bound the duration of a
    /// whole stream.
    pub(super) fn streaming_call<'a>(
        &self,
        service: &'a str,
        method: &'a str,
        format: Format,
        options: CallOptions,
    ) -> Result<Call<'a>, Status> {
        let timeout = options.timeout;
        let body = Body::new(format, Bytes::new());
        let call = self.call_with_timeout(service, method, body, options, timeout)?;
        Ok(Call { oneway: false, ..call })
    }

    /// Creates a call, which inherits from the call in whose handler it is made.
    ///
    /// # Errors
    ///
    /// If the deadline of that call has passed, or the timeout is zero.
    pub(super) fn call<'a>(
        &self,
        service: &'a str,
        method: &'a str,
        body: Body,
        options: CallOptions,
    ) -> Result<Call<'a>, Status> {
        let timeout = options.timeout.or(self.timeout);
        self.call_with_timeout(service, method, body, options, timeout)
    }

    fn call_with_timeout<'a>(
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
            relayed: false,
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
            malformed: None,
        };
        if let Some(unsaid) = &self.unsupported {
            unsaid.warn_unsupported(&call, &inherited);
        }
        Ok(call)
    }

    /// Decompresses a reply; a call without a reply gets an empty one in its own format.
    pub(super) fn open(&self, reply: Option<Reply>, format: Format) -> Result<Response<Body>, Status> {
        let Some(Reply { result, head, attachment, trailers }) = reply else {
            return Ok(Response::new(Body::new(format, Bytes::new())));
        };
        let body = match result {
            Ok(body) => body,
            Err(status) => return Err(status.received_with(head.metadata, trailers)),
        };
        let bytes = decompress_body(head.compression, body, self.max_decompressed)
            .map_err(|status| self.unreadable(&status))?;
        let message = Body::new(head.format, bytes);
        Ok(Response { message, metadata: head.metadata, trailers, attachment })
    }

    /// Returns the failure of a reply that cannot be decompressed. gRPC has a separate code for exceeding the size
    /// limit (`doc/statuscodes.md`).
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

    /// Returns the protocol's format for what the codec prefers.
    pub(super) fn preferred_format(&self, codec: Format) -> Format {
        self.dialect.format.unwrap_or_else(|| (self.descriptor.prefer)(codec))
    }
}

impl Response<Body> {
    /// Decodes the message.
    pub(super) fn decode<C: Codec<T>, T>(
        self,
        schema: Option<&schema::Message>,
    ) -> Result<Response<T>, Status> {
        let Self { message, metadata, trailers, attachment } = self;
        let message = C::decode(message, schema).map_err(|status| unreadable(&status))?;
        Ok(Response { message, metadata, trailers, attachment })
    }

    /// Decodes the message as a plain type, keeping metadata and attachment.
    pub(super) fn read_plain<T: DeserializeOwned + 'static>(self) -> Result<Response<T>, Status> {
        let Self { message, metadata, trailers, attachment } = self;
        let message = decode_plain(&message).map_err(|status| unreadable(&status))?;
        Ok(Response { message, metadata, trailers, attachment })
    }

    /// Decodes the message as a plain type.
    pub(super) fn decode_plain<T: DeserializeOwned + 'static>(self) -> Result<T, Status> {
        decode_plain(&self.message).map_err(|status| unreadable(&status))
    }
}

/// A call with a timeout of zero is not sent: it would fail wherever it arrives.
#[cold]
fn no_time() -> Status {
    Status::deadline_exceeded("the call has a timeout of zero")
}

/// Kinds of calls that support a handle have removed it by now.
#[cold]
fn no_handle() -> Status {
    Status::invalid_argument("a call of this kind cannot be cancelled by a handle: drop it instead")
        .with_fault(Fault::Us)
}

/// The reply is at fault, not the caller.
#[cold]
pub(super) fn unreadable(status: &Status) -> Status {
    Status::internal(format!("unreadable reply: {}", status.message()))
}

/// Returns the deadline of a call with this timeout, at most that of the call being served.
pub(super) fn deadline(timeout: Option<Duration>) -> Result<Option<Instant>, Status> {
    Ok(propagation::current().bound(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout)))
}

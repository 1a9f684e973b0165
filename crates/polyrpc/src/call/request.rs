use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{Checksum, Compression, Format, Metadata};
use polyrpc_payload::schema;
use polyrpc_wire::Protocol;

use super::{CancelHandle, RedactedMetadata, redact};
use crate::codec::Codec;

/// A request with metadata and other options.
///
/// A plain message is enough for most calls; it becomes a request by `into()`.
#[derive(Debug, Clone)]
pub struct Request<T> {
    /// The message.
    pub message: T,
    /// Options of the call.
    pub options: CallOptions,
}

/// Options of a call; defaults are those of the client.
///
/// `Debug` leaves out the credential, and metadata that is likely to be secret.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// User fields, metadata or headers, depending on the protocol.
    ///
    /// Metadata that the protocol cannot represent make the call fail before it is sent, with
    /// [`InvalidArgument`](crate::Code::InvalidArgument) and the key: over gRPC, gRPC-Web and HTTP reserved names
    /// (`grpc-*`, `content-type`, `host`, `te`, `connection` and the like) and bytes not allowed in a header, unless
    /// the name ends in `-bin` (gRPC); over baidu_std, rpcx and JSON-RPC several values of one key.
    pub metadata: Metadata,
    /// Attachment: bytes in addition to the message (baidu_std, fb_rpc).
    pub attachment: Bytes,
    /// Timeout of the call; sent to the server in the protocol's own field.
    pub timeout: Option<Duration>,
    /// Format of the message. Default: the preference of codec and protocol.
    pub format: Option<Format>,
    /// Compression of the message.
    pub compression: Option<Compression>,
    /// Part of the message that the checksum covers (baidu_std).
    pub checksum: Checksum,
    /// Sends the call without waiting: the reply is an empty message if the protocol sends none.
    pub oneway: bool,
    /// Credential of the caller, instead of the client's own.
    pub credential: Option<Bytes>,
    /// Waits until the server can be reached, at most for the timeout of the call, instead of failing immediately. Rejected
    /// by a blocking client.
    pub wait_for_ready: bool,
    /// The call is idempotent: it may be retried even if a server may have started it.
    pub idempotent: bool,
    /// Key of calls that should go to the same server, if the client has several and balances by a hash: brpc's request
    /// code.
    pub key: Option<u64>,
    /// Handle that cancels the call. A blocking client rejects it, and so do
    /// [`Client::open_raw`](crate::Client::open_raw), [`Client::open_stream`](crate::Client::open_stream),
    /// [`Client::open_stream_raw`](crate::Client::open_stream_raw) and
    /// [`Client::open_streams_raw`](crate::Client::open_streams_raw), whose calls are cancelled by dropping
    /// the future or the stream.
    pub cancel: Option<CancelHandle>,
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("metadata", &RedactedMetadata(&self.metadata))
            .field("attachment", &self.attachment)
            .field("timeout", &self.timeout)
            .field("format", &self.format)
            .field("compression", &self.compression)
            .field("checksum", &self.checksum)
            .field("oneway", &self.oneway)
            .field("credential", &redact(self.credential.as_ref()))
            .field("wait_for_ready", &self.wait_for_ready)
            .field("idempotent", &self.idempotent)
            .field("key", &self.key)
            .field("cancel", &self.cancel)
            .finish()
    }
}

impl<T> From<T> for Request<T> {
    fn from(message: T) -> Self {
        Self { message, options: CallOptions::default() }
    }
}

impl<T> Request<T> {
    /// Creates a request without options.
    pub fn new(message: T) -> Self {
        message.into()
    }

    /// Sets a user field, metadata entry or header.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.options.metadata.insert(key.into(), value);
        self
    }

    /// Sends an attachment: bytes in addition to the message.
    #[must_use]
    pub fn with_attachment(mut self, attachment: impl Into<Bytes>) -> Self {
        self.options.attachment = attachment.into();
        self
    }

    /// Sets the timeout. With zero the call fails with `deadline_exceeded` before anything is sent.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Compresses the message.
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.options.compression = Some(compression);
        self
    }

    /// Encodes the message in this format.
    #[must_use]
    pub fn with_format(mut self, format: Format) -> Self {
        self.options.format = Some(format);
        self
    }

    /// Adds a checksum (baidu_std).
    #[must_use]
    pub fn with_checksum(mut self, checksum: Checksum) -> Self {
        self.options.checksum = checksum;
        self
    }

    /// Sets the credential of the caller, instead of the client's own.
    #[must_use]
    pub fn with_credential(mut self, credential: impl Into<Bytes>) -> Self {
        self.options.credential = Some(credential.into());
        self
    }

    /// Waits until the server can be reached, at most for the timeout of the call, instead of failing immediately. Rejected
    /// by a blocking client.
    #[must_use]
    pub fn with_wait_for_ready(mut self) -> Self {
        self.options.wait_for_ready = true;
        self
    }

    /// Declares the call idempotent, so that it may be retried even if a server may have started it.
    #[must_use]
    pub fn with_idempotent(mut self) -> Self {
        self.options.idempotent = true;
        self
    }

    /// Sets the key of calls that should go to the same server (brpc's request code).
    #[must_use]
    pub fn with_key(mut self, key: u64) -> Self {
        self.options.key = Some(key);
        self
    }

    /// Sets a handle that can cancel the call.
    #[must_use]
    pub fn with_cancel(mut self, cancel: &CancelHandle) -> Self {
        self.options.cancel = Some(cancel.clone());
        self
    }

    /// Requests no reply: the call ends when it is sent, with an empty message.
    #[must_use]
    pub fn with_oneway(mut self) -> Self {
        self.options.oneway = true;
        self
    }
}

/// A reply with its metadata and other data.
///
/// `Debug` leaves out metadata that is likely to be secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct Response<T> {
    /// The message.
    pub message: T,
    /// User fields, metadata, headers of the reply.
    pub metadata: Metadata,
    /// Trailers after the message (gRPC, gRPC-Web, Connect).
    pub trailers: Metadata,
    /// Attachment: bytes in addition to the message.
    pub attachment: Bytes,
}

impl<T: fmt::Debug> fmt::Debug for Response<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("message", &self.message)
            .field("metadata", &RedactedMetadata(&self.metadata))
            .field("trailers", &RedactedMetadata(&self.trailers))
            .field("attachment", &self.attachment)
            .finish()
    }
}

impl<T> Response<T> {
    /// Creates a reply without metadata.
    pub fn new(message: T) -> Self {
        Self { message, metadata: Metadata::new(), trailers: Metadata::new(), attachment: Bytes::new() }
    }
}

/// A method of a typed stub: its name, and the schema of its messages.
#[derive(Clone)]
pub struct StubMethod {
    pub(crate) service: &'static str,
    pub(crate) method: &'static str,
    /// The method by number: `Echo#7`, `Echo#7,0`; empty if not set.
    numbered: &'static str,
    pub(crate) input: Option<schema::Message>,
    pub(crate) output: Option<schema::Message>,
}

impl StubMethod {
    /// Creates a method whose messages need no schema.
    pub const fn plain(service: &'static str, method: &'static str) -> Self {
        Self { service, method, numbered: "", input: None, output: None }
    }

    /// Creates a method whose messages are described by `pool`.
    pub fn described<C, Req, Resp>(
        service: &'static str,
        method: &'static str,
        pool: Option<&schema::Pool>,
    ) -> Self
    where
        C: Codec<Req> + Codec<Resp>,
    {
        let input = pool.and_then(<C as Codec<Req>>::describe);
        let output = pool.and_then(<C as Codec<Resp>>::describe);
        Self { service, method, numbered: "", input, output }
    }

    /// Sets the name for protocols with numbered methods (fb_rpc): `Echo#7`, or `Echo#7,0` if its index in the service
    /// differs.
    #[must_use]
    pub fn numbered(self, numbered: &'static str) -> Self {
        Self { numbered, ..self }
    }

    /// Returns the name of the method in this protocol.
    pub(crate) fn name_in(&self, protocol: Protocol) -> &'static str {
        match self.numbered {
            "" => self.method,
            numbered if protocol.descriptor().capabilities.numbers_methods => numbered,
            _ => self.method,
        }
    }
}

impl fmt::Debug for StubMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_secrets() {
        let request = Request::new("message")
            .with_credential("hunter2")
            .with_metadata("Authorization", "Bearer hunter2")
            .with_metadata("x-api-key", "hunter2")
            .with_metadata("cookie", "session=hunter2")
            .with_metadata("traceparent", "00-aa-bb-01");
        let mut response = Response::new(());
        response.metadata.insert("set-cookie", "session=hunter2");
        for shown in [format!("{request:?}"), format!("{:#?}", request.options), format!("{response:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let shown = format!("{request:?}");
        assert!(shown.contains("credential: Some(<redacted>)"), "{shown}");
        assert!(shown.contains("00-aa-bb-01"), "{shown}");
        assert!(format!("{:?}", CallOptions::default()).contains("credential: None"));
        let builder = crate::Client::builder("rpcx+etcd://me:hunter2@h:1/base").credential("hunter2");
        assert!(!format!("{builder:?}").contains("hunter2"));
    }
}

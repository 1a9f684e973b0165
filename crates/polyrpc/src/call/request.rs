use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{Checksum, Compression, Format, Metadata};
use polyrpc_payload::schema;
use polyrpc_wire::Protocol;

use super::{CancelHandle, RedactedMetadata, redacted};
use crate::codec::Codec;

/// A request with what travels beside it.
///
/// A plain message is enough for most calls; it becomes a request by `into()`.
#[derive(Debug, Clone)]
pub struct Request<T> {
    /// The message.
    pub message: T,
    /// What else the call says.
    pub options: CallOptions,
}

/// What a call says beside its message; what is left at its default is as the client was built.
///
/// `Debug` leaves out the credential, and metadata that is likely to be secret.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// User fields, metadata, headers, by whatever name the protocol has for them.
    ///
    /// What the protocol cannot carry fails the call before it is sent, with
    /// [`InvalidArgument`](crate::Code::InvalidArgument) and the key: over gRPC, gRPC-Web and HTTP reserved names (`grpc-*`,
    /// `content-type`, `host`, `te`, `connection` and the like) and bytes that no header has, unless the name ends in `-bin`
    /// (gRPC); over baidu_std, rpcx and JSON-RPC several values of one key.
    pub metadata: Metadata,
    /// Bytes beside the message (baidu_std).
    pub attachment: Bytes,
    /// How long to wait for the reply; the server is told, in the protocol's own field.
    pub timeout: Option<Duration>,
    /// How the message is written. Default: what codec and protocol prefer.
    pub format: Option<Format>,
    /// How the message is compressed.
    pub compression: Option<Compression>,
    /// What the checksum covers (baidu_std).
    pub checksum: Checksum,
    /// Sends the call and does not wait: the reply is an empty message if the protocol sends none.
    pub oneway: bool,
    /// Credential of the caller, in place of the client's own.
    pub credential: Option<Bytes>,
    /// Waits, as long as the call may wait, until the server can be reached, instead of failing at once.
    pub wait_for_ready: bool,
    /// The call may be executed twice with no harm: it may be sent again even though a server may have begun it.
    pub idempotent: bool,
    /// What calls have in common that are to go to the same server, where the client has several and balances by a
    /// hash: brpc's request code.
    pub key: Option<u64>,
    /// Cancels the call from elsewhere. A raw call, one of a blocking client and one with streams beside it refuse it: they
    /// are cancelled by dropping them.
    pub cancel: Option<CancelHandle>,
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("metadata", &RedactedMetadata(&self.metadata))
            .field("attachment", &self.attachment)
            .field("timeout", &self.timeout)
            .field("format", &self.format)
            .field("compression", &self.compression)
            .field("checksum", &self.checksum)
            .field("oneway", &self.oneway)
            .field("credential", &redacted(self.credential.as_ref()))
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
    /// A request that is nothing but its message.
    pub fn new(message: T) -> Self {
        message.into()
    }

    /// Sets a user field, metadata entry or header.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.options.metadata.insert(key.into(), value);
        self
    }

    /// Sends bytes beside the message.
    #[must_use]
    pub fn with_attachment(mut self, attachment: impl Into<Bytes>) -> Self {
        self.options.attachment = attachment.into();
        self
    }

    /// Waits no longer than this. With zero the call fails with `deadline_exceeded` before anything is sent.
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

    /// Writes the message in this format.
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

    /// Proves who calls, in place of the client's own credential.
    #[must_use]
    pub fn with_credential(mut self, credential: impl Into<Bytes>) -> Self {
        self.options.credential = Some(credential.into());
        self
    }

    /// Waits, as long as the call may wait, until the server can be reached, instead of failing at once.
    #[must_use]
    pub fn with_wait_for_ready(mut self) -> Self {
        self.options.wait_for_ready = true;
        self
    }

    /// Says that the call may be executed twice with no harm, and so may be sent again even though a server may have
    /// begun it.
    #[must_use]
    pub fn with_idempotent(mut self) -> Self {
        self.options.idempotent = true;
        self
    }

    /// Says what calls have in common that are to go to the same server (brpc's request code).
    #[must_use]
    pub fn with_key(mut self, key: u64) -> Self {
        self.options.key = Some(key);
        self
    }

    /// Lets this handle cancel the call.
    #[must_use]
    pub fn with_cancel(mut self, cancel: &CancelHandle) -> Self {
        self.options.cancel = Some(cancel.clone());
        self
    }

    /// Wants no reply: the call ends when it is sent, with an empty message.
    #[must_use]
    pub fn with_oneway(mut self) -> Self {
        self.options.oneway = true;
        self
    }
}

/// A reply with what came beside it.
///
/// `Debug` leaves out metadata that is likely to be secret.
#[derive(Clone)]
pub struct Response<T> {
    /// The message.
    pub message: T,
    /// User fields, metadata, headers of the reply.
    pub metadata: Metadata,
    /// What came behind the message (gRPC).
    pub trailers: Metadata,
    /// Bytes beside the message.
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
    /// A reply that is nothing but its message.
    pub fn new(message: T) -> Self {
        Self { message, metadata: Metadata::new(), trailers: Metadata::new(), attachment: Bytes::new() }
    }
}

/// A method as a typed stub knows it: its name, and what the schema says of its messages.
#[derive(Clone)]
pub struct Signature {
    pub(crate) service: &'static str,
    pub(crate) method: &'static str,
    /// The method by number: `Echo#7`, `Echo#7,0`; empty if nobody said it.
    numbered: &'static str,
    pub(crate) input: Option<schema::Message>,
    pub(crate) output: Option<schema::Message>,
}

impl Signature {
    /// The method of a service whose messages need no schema.
    pub const fn plain(service: &'static str, method: &'static str) -> Self {
        Self { service, method, numbered: "", input: None, output: None }
    }

    /// The method of a service whose messages `pool` describes.
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

    /// How the method is called where methods have numbers (fb_rpc): `Echo#7`, or `Echo#7,0` if its place in the
    /// service is another.
    #[must_use]
    pub fn numbered(self, numbered: &'static str) -> Self {
        Self { numbered, ..self }
    }

    /// What this protocol calls the method.
    pub(crate) fn called(&self, protocol: Protocol) -> &'static str {
        match self.numbered {
            "" => self.method,
            numbered if protocol.descriptor().capabilities.numbers_methods => numbered,
            _ => self.method,
        }
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_prints_no_secrets() {
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

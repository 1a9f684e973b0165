use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::{Compression, Format, Metadata, Status};

/// Identifies a call on its connection: `correlation_id` in baidu_std, `seq` in rpcx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Identifies a streaming call on its connection: HTTP/2's stream identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// One message of a streaming call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The encoded message, compressed with `compression`.
    pub body: Bytes,
    /// Compression of this message; a stream may compress some of its messages and not others.
    pub compression: Compression,
}

/// A unary request, or the start of a streaming call, whose body is empty; independent of the protocol.
///
/// A server's session emits it and a client's session accepts it, so that a call received over one protocol can be
/// forwarded unchanged over another.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// Service name, as the peer wrote it: `example.EchoService`, `EchoService`, `Arith`; empty for a plain function in
    /// protocols without services.
    pub service: &'a str,
    /// Method or function name.
    pub method: &'a str,
    /// The encoded message: compressed with `head.compression` when a server's session emits it, not compressed yet
    /// when a client's session accepts it.
    pub body: Bytes,
    /// Attachment: bytes sent along with the message, never compressed (baidu_std, fb_rpc); empty in other
    /// protocols.
    pub attachment: Bytes,
    /// Format, compression, checksum and metadata.
    pub head: Head,
    /// Remaining timeout of the caller. `None`: not specified.
    pub timeout: Option<Duration>,
    /// The caller expects no response.
    pub oneway: bool,
    /// Credential of the caller.
    pub credential: Credential,
    /// The credential was accepted when the request's head was checked ([`Verdict::Accepted`]).
    ///
    /// [`Verdict::Accepted`]: crate::session::Verdict::Accepted
    pub authenticated: bool,
    /// Why the body is unusable (a checksum mismatch). It is reported only after the method was found, since peers
    /// check in that order.
    pub malformed: Option<Status>,
}

impl<'a> Call<'a> {
    /// Creates a call to `service`'s `method` with nothing but a body.
    pub fn new(service: &'a str, method: &'a str, format: Format, body: Bytes) -> Self {
        Self {
            service,
            method,
            body,
            attachment: Bytes::new(),
            head: Head { format, ..Head::default() },
            timeout: None,
            oneway: false,
            credential: Credential::Call(None),
            authenticated: false,
            malformed: None,
        }
    }

    /// Returns the service, or the function's name if the call has no service: the name that an error reports as
    /// unknown.
    pub fn service_or_function(&self) -> &'a str {
        if self.service.is_empty() { self.method } else { self.service }
    }
}

/// Header of a message, in either direction.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// Encoding of the message.
    pub format: Format,
    /// Compression of the encoded message: applied already (received) or to be applied (sent). A protocol may still
    /// send a small message uncompressed.
    pub compression: Compression,
    /// Bytes covered by the checksum, if the protocol has one.
    pub checksum: Checksum,
    /// The message is a list of positional arguments (JSON-RPC's array of params).
    pub positional: bool,
    /// The call is plain HTTP, even if its connection carries other protocols: HTTP/2 mostly carries gRPC.
    pub plain_http: bool,
    /// The metadata are those of another server's response: entries that the protocol cannot carry are left out, instead
    /// of failing a call that was processed.
    pub relayed: bool,
    /// Key/value pairs: user fields in baidu_std, metadata in rpcx, headers in HTTP.
    pub metadata: Metadata,
}

/// Bytes covered by a message's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// No checksum.
    #[default]
    None,
    /// The message's bytes on the wire.
    Message,
    /// The message's bytes and the attachment after them.
    MessageAndAttachment,
}

/// Credential of the caller, and its validity. `Debug` omits the credential.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// Checked once: the first message of a connection carries it, and later ones share its result.
    Connection(Option<Bytes>),
    /// Checked on every call.
    Call(Option<Bytes>),
}

impl Credential {
    /// Returns the bytes of the credential, if the peer sent one.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Connection(bytes) | Self::Call(bytes) => bytes.as_ref(),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Connection(_) => "Connection",
            Self::Call(_) => "Call",
        };
        f.debug_tuple(name).field(&self.bytes().map(|_| format_args!("<redacted>"))).finish()
    }
}

/// Response to a call.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The encoded message, or the failure. A received message is compressed with `head.compression`; one to be sent is
    /// not compressed yet.
    pub result: Result<Bytes, Status>,
    /// Encoding of the message, and the response metadata.
    pub head: Head,
    /// Attachment: bytes sent along with the message (baidu_std, fb_rpc), or an HTTP body that is not a
    /// message.
    pub attachment: Bytes,
    /// Trailers: key/value pairs sent after the message (gRPC, gRPC-Web, Connect). Those of a received reply
    /// are empty in other protocols.
    pub trailers: Metadata,
}

impl Reply {
    /// Creates a reply without attachment and trailers.
    pub fn new(result: Result<Bytes, Status>, head: Head) -> Self {
        Self { result, head, attachment: Bytes::new(), trailers: Metadata::new() }
    }

    /// Creates a reply with only a message in this format.
    pub fn message(format: Format, body: Bytes) -> Self {
        Self::new(Ok(body), Head { format, ..Head::default() })
    }

    /// Creates a failed reply.
    pub fn failure(status: Status) -> Self {
        Self::new(Err(status), Head::default())
    }
}

/// A message that the server sends to the client outside of any call.
#[derive(Debug, Clone)]
pub struct Push {
    /// Service name or similar, chosen by the sender.
    pub service: String,
    /// Method name or similar, chosen by the sender.
    pub method: String,
    /// Key/value pairs.
    pub metadata: Metadata,
    /// The message, as encoded by the sender.
    pub body: Bytes,
}

/// Topic of a subscription, as its protocol identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Topic name, which need not be UTF-8; a connection may subscribe to any number of them.
    Name(Bytes),
    /// Number derived from the topic name; a connection has one, the last.
    Id(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_credential() {
        let mut call = Call::new("S", "M", Format::default(), Bytes::new());
        call.credential = Credential::Call(Some("hunter2".into()));
        let shown = format!("{call:?}");
        assert!(shown.contains("credential: Call(Some(<redacted>))"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        let shown = format!("{:?}", Credential::Connection(Some("hunter2".into())));
        assert_eq!(shown, "Connection(Some(<redacted>))");
        assert_eq!(format!("{:?}", Credential::Call(None)), "Call(None)");
    }
}

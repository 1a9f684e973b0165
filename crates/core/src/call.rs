use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::{Compression, Format, Metadata, Status};

/// Names a call on its connection: `correlation_id` in baidu_std, `seq` in rpcx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Names a call on its connection while its messages come and go one by one: HTTP/2's stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// One message of a call that has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The encoded message, compressed as `compression` says.
    pub body: Bytes,
    /// How it is compressed; a stream may compress some of its messages and others not.
    pub compression: Compression,
}

/// A unary request, the same whatever protocol carries it.
///
/// A server's session gives it out, a client's takes it in, so that what one protocol received another
/// can send on untouched.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The service, as the peer wrote it: `example.EchoService`, `EchoService`, `Arith`; empty for a
    /// plain function in protocols that have no services.
    pub service: &'a str,
    /// The method, or the function's name.
    pub method: &'a str,
    /// The encoded message: compressed as `head.compression` says when a server's session gives it out, not
    /// yet when a client's session takes it.
    pub body: Bytes,
    /// Bytes beside the message, never compressed (baidu_std); empty elsewhere.
    pub attachment: Bytes,
    /// How the body is written and compressed, what checksum it carries, and the metadata.
    pub head: Head,
    /// How long the caller still waits. `None`: he did not say.
    pub timeout: Option<Duration>,
    /// The caller wants no answer.
    pub oneway: bool,
    /// Credential of the caller.
    pub credential: Credential,
    /// The credential was accepted when the request's head was judged ([`Verdict::Accepted`]).
    ///
    /// [`Verdict::Accepted`]: crate::session::Verdict::Accepted
    pub authenticated: bool,
    /// The body cannot be used, for this reason (a checksum that does not fit). Told only once the method
    /// is known to exist, since that is the peers' order of checks.
    pub spoiled: Option<Status>,
}

impl<'a> Call<'a> {
    /// A call of `service`'s `method` with nothing but a body.
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
            spoiled: None,
        }
    }

    /// The service, or the function's name where the call has no service: what an error names if it does not exist.
    pub fn service_or_function(&self) -> &'a str {
        if self.service.is_empty() { self.method } else { self.service }
    }
}

/// What travels before a message, in either direction.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// How the message is encoded.
    pub format: Format,
    /// How the encoded message is compressed (received) or to be compressed (sent). A protocol may send a
    /// small message uncompressed all the same.
    pub compression: Compression,
    /// What the checksum covers, where the protocol has one.
    pub checksum: Checksum,
    /// The message is a list of positional arguments (JSON-RPC's array of params).
    pub positional: bool,
    /// It came as plain HTTP, whatever else its connection carries: within HTTP/2 that is mostly gRPC.
    pub plain_http: bool,
    /// Free key/value pairs: user fields in baidu_std, metadata in rpcx, headers in HTTP.
    pub metadata: Metadata,
}

/// What a message's checksum covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// No checksum.
    #[default]
    None,
    /// The message's bytes on the wire.
    Message,
    /// The message's bytes and the attachment behind them.
    MessageAndAttachment,
}

/// Credential of the caller, and for how long the proof holds. `Debug` leaves the proof out.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// Judged once: the first message of a connection carries it, later ones are trusted as it was.
    Connection(Option<Bytes>),
    /// Judged on every call.
    Call(Option<Bytes>),
}

impl Credential {
    /// The bytes of the credential, if the peer sent one.
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

/// What a call ended with.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The encoded message, or why there is none. A received message is compressed as `head.compression`
    /// says; one to be sent is not compressed yet.
    pub result: Result<Bytes, Status>,
    /// How the message is written, and the metadata that goes back.
    pub head: Head,
    /// Bytes beside the message (baidu_std, or an HTTP body that is not a message).
    pub attachment: Bytes,
    /// Key/value pairs that travel behind the message (gRPC); empty elsewhere.
    pub trailers: Metadata,
}

impl Reply {
    /// A reply with neither attachment nor trailers.
    pub fn new(result: Result<Bytes, Status>, head: Head) -> Self {
        Self { result, head, attachment: Bytes::new(), trailers: Metadata::new() }
    }

    /// A reply that holds a message in this format and nothing else.
    pub fn message(format: Format, body: Bytes) -> Self {
        Self::new(Ok(body), Head { format, ..Head::default() })
    }

    /// A failed call.
    pub fn failure(status: Status) -> Self {
        Self::new(Err(status), Head::default())
    }
}

/// A message outside of any call, from the server to the client.
#[derive(Debug, Clone)]
pub struct Push {
    /// A service-like name, chosen by the sender.
    pub service: String,
    /// A method-like name, chosen by the sender.
    pub method: String,
    /// Free key/value pairs.
    pub metadata: Metadata,
    /// The message, as the sender wrote it.
    pub body: Bytes,
}

/// What a client subscribes to, as its protocol names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// By its name, which need not be UTF-8; a connection may have any number of them.
    Name(Bytes),
    /// By the number that stands for its name; a connection has one, the last.
    Id(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_prints_no_credential() {
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

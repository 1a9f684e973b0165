use std::fmt;

use bytes::Bytes;
use polyrpc_core::{Compression, Format, Metadata, Status};

use super::relay::Relay;
use crate::call::streaming::Streaming;
use crate::call::{Response, Trailers};
use crate::client::RawCall;
use crate::codec::Body;
use crate::{Error, Failure};

/// Response of a [fallback](crate::Server::fallback): encoded messages, metadata, trailers and attachment.
///
/// Parts that the protocol cannot carry (an attachment in gRPC, trailers in rpcx) are not sent, as for every handler's
/// response. Unlike there, this includes single entries of the metadata, which are counted and logged. A response of
/// several messages is rejected if the protocol has no streams.
#[derive(Debug, Default)]
pub struct RawResponse {
    /// Leading metadata, sent before the message: user fields, metadata, headers.
    pub metadata: Metadata,
    /// Trailing metadata, sent after the message if the protocol supports it (gRPC, gRPC-Web, Connect).
    pub trailers: Metadata,
    /// Attachment next to the message (baidu_std, fb_rpc; the whole body in HTTP).
    pub attachment: Bytes,
    /// Compression of the message, if the protocol lets the server choose.
    pub compression: Compression,
    /// Format of the message; `None`: the protocol's default for the request.
    pub format: Option<Format>,
    pub(super) late: Option<Trailers>,
    pub(super) on_end: EndCallback,
    pub(super) answer: Answer,
}

pub(super) enum Answer {
    Message(Bytes),
    Messages(Streaming<Bytes>),
    Relay(Box<Relay>),
}

/// Callback for the end of a streaming response.
#[derive(Default)]
pub(super) struct EndCallback(Option<OnEnd>);

type OnEnd = Box<dyn FnOnce(Result<(), &Status>) + Send>;

impl EndCallback {
    pub(super) fn call(self, result: Result<(), &Status>) {
        if let Some(callback) = self.0 {
            callback(result);
        }
    }
}

impl Default for Answer {
    fn default() -> Self {
        Self::Message(Bytes::new())
    }
}

impl RawResponse {
    /// Creates a response of one message.
    pub fn message(bytes: impl Into<Bytes>) -> Self {
        Self { answer: Answer::Message(bytes.into()), ..Self::default() }
    }

    /// Creates a response of any number of messages; an error among them ends the call with it.
    pub fn messages(messages: Streaming<Bytes>) -> Self {
        Self { answer: Answer::Messages(messages), ..Self::default() }
    }

    /// Creates a response that relays the messages of an upstream call; `requests` are forwarded to it meanwhile.
    /// Metadata, trailers and a failure are passed on as received.
    pub fn relay(requests: Streaming<Bytes>, call: RawCall) -> Self {
        Self::relay_with(requests, call, Failure::from)
    }

    /// As [`relay`](Self::relay), with the failures of the upstream call as `failure` maps them, for proxies whose
    /// callers must not see the texts of the proxy's own client.
    pub fn relay_with(
        requests: Streaming<Bytes>,
        call: RawCall,
        failure: impl Fn(Error) -> Failure + Send + 'static,
    ) -> Self {
        let relay = Relay::new(requests, call, Box::new(failure));
        Self { answer: Answer::Relay(Box::new(relay)), ..Self::default() }
    }

    /// Returns a handle to set the trailing metadata while the messages are still being produced.
    pub fn late_trailers(&mut self) -> Trailers {
        self.late.get_or_insert_default().clone()
    }

    /// Calls `callback` when a response of several messages ends, with the failure that ended it, if any. It is dropped
    /// without being called if the caller cancels first, and for a response of one message.
    pub fn on_end(&mut self, callback: impl FnOnce(Result<(), &Status>) + Send + 'static) {
        self.on_end = EndCallback(Some(Box::new(callback)));
    }
}

/// Response of an upstream server, unchanged.
impl From<Response<Body>> for RawResponse {
    fn from(response: Response<Body>) -> Self {
        let Response { message, metadata, trailers, attachment } = response;
        let format = Some(message.format);
        Self { metadata, trailers, attachment, format, ..Self::message(message.bytes) }
    }
}

impl fmt::Debug for EndCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "EndCallback(set)" } else { "EndCallback" })
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message(_) => "Message",
            Self::Messages(_) => "Messages",
            Self::Relay(_) => "Relay",
        })
    }
}

use std::fmt;

use bytes::Bytes;
use polyrpc_core::{Compression, Format, Metadata};

use super::relay::Relay;
use crate::call::{Response, Trailers};
use crate::client::RawCall;
use crate::codec::Body;
use crate::streaming::Streaming;

/// What a [fallback](crate::Server::fallback) answers a call with: encoded messages, and what travels beside them.
///
/// What the protocol has no place for (an attachment in gRPC, trailers in rpcx) does not travel, as with every handler's
/// answer; an answer of several messages is refused where the protocol has no streams.
#[derive(Debug, Default)]
pub struct RawResponse {
    /// Sent before the message: user fields, metadata, headers.
    pub metadata: Metadata,
    /// Sent behind the message, where the protocol has room for it (gRPC).
    pub trailers: Metadata,
    /// Bytes beside the message (baidu_std, fb_rpc; the whole body in HTTP).
    pub attachment: Bytes,
    /// How the message is compressed, where the protocol lets the server choose.
    pub compression: Compression,
    /// How the message is written; `None`: as the protocol answers such requests.
    pub format: Option<Format>,
    pub(super) late: Option<Trailers>,
    pub(super) answer: Answer,
}

pub(super) enum Answer {
    Message(Bytes),
    Messages(Streaming<Bytes>),
    Relay(Box<Relay>),
}

impl Default for Answer {
    fn default() -> Self {
        Self::Message(Bytes::new())
    }
}

impl RawResponse {
    /// One message.
    pub fn message(bytes: impl Into<Bytes>) -> Self {
        Self { answer: Answer::Message(bytes.into()), ..Self::default() }
    }

    /// Any number of messages; an error among them ends the call with it.
    pub fn messages(messages: Streaming<Bytes>) -> Self {
        Self { answer: Answer::Messages(messages), ..Self::default() }
    }

    /// The messages are what a server answers that was called for this call; `requests` are sent to it meanwhile.
    /// Metadata, trailers and a failure go on as they come.
    pub fn relay(requests: Streaming<Bytes>, call: RawCall) -> Self {
        Self { answer: Answer::Relay(Box::new(Relay::new(requests, call))), ..Self::default() }
    }

    /// A way to say what travels behind the messages while they are still being made.
    pub fn late_trailers(&mut self) -> Trailers {
        self.late.get_or_insert_default().clone()
    }
}

/// The reply of a server that was called, as it came.
impl From<Response<Body>> for RawResponse {
    fn from(response: Response<Body>) -> Self {
        let Response { message, metadata, trailers, attachment } = response;
        let format = Some(message.format);
        Self { metadata, trailers, attachment, format, ..Self::message(message.bytes) }
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

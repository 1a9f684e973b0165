//! Events of sessions, and the data that they carry.

use std::any::Any;
use std::fmt;

use crate::{Call, CallId, Credential, Head, Message, Push, Reply, Status, StreamId, Topic};

/// Event of a server session.
#[derive(Debug)]
pub enum ServerEvent<'s, T> {
    /// The head of a request whose body has not arrived. The session continues to read after
    /// [`Server::apply_verdict`](super::Server::apply_verdict) was called for it.
    Head(RequestHead<'s>, StreamId),
    /// A complete unary request. Names are borrowed from the session; the body is shared, not copied.
    Call(Call<'s>, T),
    /// A request that continues with messages, until [`End`](Self::End). Only the method determines whether it is a
    /// unary request in pieces or a stream.
    Open(Call<'s>, T, StreamId),
    /// One message of an open request.
    Message(StreamId, Message),
    /// The end of an open request's messages.
    End(StreamId),
    /// The peer accepts more of a response.
    Room(StreamId),
    /// The peer has cancelled this call: its reply would be discarded.
    Cancelled(StreamId),
    /// The peer has answered a [`ping`](super::server::Housekeeping::ping).
    Alive,
    /// Much work was done for this peer, possibly without other events: other connections should have their turn. The
    /// inbox may contain more.
    Pause,
    /// The peer subscribes to this topic.
    Subscribe(Topic),
    /// The rest of the inbox is not of this protocol: answer pending calls, then detect the protocol again. The peers
    /// allow a connection to change its protocol between messages (brpc `input_messenger.cpp`).
    Foreign,
    /// The peer's `CONNECT` for another protocol was accepted: detect the protocol again. What was negotiated before,
    /// such as ALPN, applied to HTTP.
    Connect,
    /// The connection continues in HTTP/2, whose first request has already arrived: the HTTP/2 session takes it over.
    Upgrade(Handover),
    /// The connection continues as a WebSocket: the protocol of its messages is detected next.
    WebSocket,
}

/// State that a session passes to the session of another protocol, which takes over the connection. Only these two know
/// its type.
pub struct Handover(Box<dyn Any + Send>);

impl Handover {
    /// Wraps the state.
    pub fn new(state: impl Any + Send) -> Self {
        Self(Box::new(state))
    }

    /// Returns the state if it has this type.
    pub fn downcast<T: Any>(self) -> Option<T> {
        self.0.downcast().ok().map(|state| *state)
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handover")
    }
}

/// Data about a request before its body has arrived.
#[derive(Debug)]
pub struct RequestHead<'s> {
    /// Service and method; `None` if only the body contains them (JSON-RPC).
    pub target: Option<(&'s str, &'s str)>,
    /// Credential of the caller.
    pub credential: Credential,
}

/// Decision about a request by its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its body is read. Its call is marked as [authenticated](Call::authenticated).
    Accepted,
    /// Its credential was rejected.
    Unauthenticated(Status),
    /// It cannot be served now.
    Refused(Status),
    /// Its service or method does not exist.
    Missing(NotFound),
}

/// Missing target of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// The service does not exist.
    Service,
    /// The service has no such method.
    Method,
}

/// Event of a client session.
#[derive(Debug)]
pub enum ClientEvent {
    /// A call was answered, or an opened call has ended: with an empty message, or with a failure.
    Reply(CallId, Reply),
    /// The response to an opened call has started: the metadata before its messages.
    Head(CallId, Head),
    /// One message of the response to an opened call.
    Message(CallId, Message),
    /// The peer accepts more of an opened call.
    Room(CallId),
    /// An unsolicited message.
    Push(Push),
    /// The peer answered a heartbeat.
    Alive,
    /// The peer closes the connection because of too many heartbeats.
    TooManyHeartbeats,
    /// The peer drains the connection: send nothing more, but wait for pending replies.
    GoAway,
}

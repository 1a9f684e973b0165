//! What a protocol is made of: for those that other crates add to a server or a client.
//!
//! The built-in protocols are made of the same parts. A protocol has
//!
//! * a static [`Descriptor`]: its name, the schemes of its URLs, how its first bytes are recognised, what it can carry;
//! * a server's session, which implements [`session::Server`], added by [`Server::protocol`](crate::Server::protocol);
//! * a client's session, which implements [`session::Client`], added by
//!   [`Builder::protocol`](crate::client::Builder::protocol).
//!
//! `examples/custom_protocol.rs` is a whole one.
//!
//! # Sessions
//!
//! A session is the memory of one connection. It has no socket, no task, no lock and no clock: bytes go in, calls come out,
//! and the other way round. Sockets, TLS, time-outs, limits on calls, layers, metrics and shutting down are the framework's.
//!
//! **On a server** the framework appends what it has read to the inbox, and calls
//! [`next_event`](session::Server::next_event) until it returns `None`, which means that more bytes are needed. Return
//!
//! * `Ok(None)` whenever a message is incomplete: never an error, and with the inbox as it was;
//! * [`ServerEvent::Call`](session::ServerEvent::Call) for a whole call, with a ticket: whatever is needed to answer this call and no
//!   other. It goes to [`reply`](session::Server::reply), in any order and perhaps never;
//! * a [`Violation`] if the bytes are none of the protocol's. It ends the connection.
//!
//! Check every length that a peer announces against [`Limits`] before memory is set aside for it. What the protocol answers
//! by itself, such as heartbeats, is appended to the outbox without an event; return
//! [`ServerEvent::Pause`](session::ServerEvent::Pause) behind it if a peer could cause much of it.
//!
//! A protocol whose answers must keep an order keeps it in its session. One that has no word for something leaves the
//! method for it at its default.
//!
//! **On a client** [`send`](session::Client::send) appends a call to the outbox, and
//! [`next_event`](session::Client::next_event) gives the answer with the call's [`CallId`]. A call that the protocol cannot
//! express must fail in `send`, before anything was appended: with metadata, an attachment, a credential (its own or that of the
//! [client](crate::client::SessionContext::credential)), a format or a compression that has no place. Without call numbers on the wire, return 1 from
//! [`concurrency`](session::Client::concurrency), and set [`Dialect::one_at_a_time`].
//!
//! # Messages
//!
//! Bodies are encoded by the codec of the method or the client in the format that [`Descriptor::prefer`] says, unless the
//! caller asks for another one. A session writes and reads the bytes and says the format: of a call on servers, of a reply
//! on clients. What is to be sent is not compressed yet, whatever its head asks for; what was received is given on as it is.
//!
//! # Tests
//!
//! Connect both sessions by their outboxes, as the example's tests do. Cut the bytes at any place: the events must be the same.

pub use bytes::BytesMut;
pub use polyrpc_core::protocol::*;
pub use polyrpc_core::session;
pub use polyrpc_core::{
    Call, CallId, Carrier, Credential, Head, Limits, Message, Outbox, Push, Reply, StreamId, Topic, Violation,
};

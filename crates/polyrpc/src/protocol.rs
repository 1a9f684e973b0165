//! How to write a protocol that is added to a server or a client.
//!
//! A protocol depends on the crate [`polyrpc_core`], which has the types and traits that all protocols share. The
//! built-in protocols consist of the same parts:
//!
//! * a static [`Descriptor`]: its name, schemes and [parameters](polyrpc_core::protocol::Parameter) of its URLs, how
//!   its first bytes are recognised, what it can carry;
//! * a server session, which implements [`session::Server`] and is added by
//!   [`Server::protocol`](crate::Server::protocol);
//! * a client session, which implements [`session::Client`] and is added by
//!   [`Builder::protocol`](crate::client::Builder::protocol).
//!
//! `examples/custom_protocol.rs` is a complete example.
//!
//! # Sessions
//!
//! A session holds the state of one connection. It has no socket, no task, no lock and no clock: bytes go in and calls
//! come out, and vice versa. The framework handles sockets, TLS, timeouts, limits on calls, layers, metrics and
//! shutdown.
//!
//! **On a server** the framework appends received bytes to the inbox, and calls [`next_event`] until it returns
//! `None`, which means that more bytes are needed. Return
//!
//! * `Ok(None)` whenever a message is incomplete. This is never an error, and the inbox must be left unchanged;
//! * [`ServerEvent::Call`] for a complete call, with a ticket: the data needed to answer this call. The ticket is
//!   passed to [`reply`], in any order and perhaps never;
//! * a [`Violation`] if the bytes do not conform to the protocol. It ends the connection.
//!
//! Check every length that a peer announces against [`Limits`] before allocating memory for it. Replies of the
//! protocol itself, such as those to heartbeats, are appended to the outbox without an event; return
//! [`ServerEvent::Pause`] afterwards if a peer could cause many of them.
//!
//! If the protocol requires replies in order, the session keeps that order.
//!
//! The ticket is a type of your crate that implements [`Ticket`]: it returns the failure of a call to an unknown
//! method. [`Housekeeping`] has only defaults; implement its methods if the session holds bytes or has timeouts of its
//! own. If the protocol has streaming calls or pushed messages, implement [`Streaming`] or [`Pushing`], and return the
//! session itself from [`streaming`] or [`pushing`]. There is a [`session::client::Streaming`] for clients, too.
//!
//! **On a client** [`send`] appends a call to the outbox, and [`Client::next_event`] returns the reply with the call's
//! [`CallId`]. A call that the protocol cannot express must fail in `send`, before anything was appended: with
//! metadata, an attachment, a credential (its own or [that of the client]), a format or a compression that it does not
//! support. If calls have no number on the wire, return 1 from
//! [`concurrency`], and set [`Dialect::one_at_a_time`].
//!
//! # Messages
//!
//! The codec of the method or the client encodes bodies in the format that [`Descriptor::prefer`] returns, unless the
//! caller asks for another one. A session reads and writes the bytes and their format: that of a call on servers, that
//! of a reply on clients. Outgoing bodies are not compressed yet, whatever their head requests; received bodies are
//! passed on unchanged.
//!
//! # Tests
//!
//! Connect a client session and a server session by their outboxes, as the tests of the example do. Split the bytes at
//! every position: the events must be the same.
//!
//! [that of the client]: polyrpc_core::session::client::SessionContext::credential
//! [`Client::next_event`]: polyrpc_core::session::Client::next_event
//! [`Housekeeping`]: polyrpc_core::session::server::Housekeeping
//! [`Pushing`]: polyrpc_core::session::server::Pushing
//! [`ServerEvent::Call`]: polyrpc_core::session::ServerEvent::Call
//! [`ServerEvent::Pause`]: polyrpc_core::session::ServerEvent::Pause
//! [`Streaming`]: polyrpc_core::session::server::Streaming
//! [`Ticket`]: polyrpc_core::session::server::Ticket
//! [`concurrency`]: polyrpc_core::session::Client::concurrency
//! [`next_event`]: polyrpc_core::session::Server::next_event
//! [`pushing`]: polyrpc_core::session::Server::pushing
//! [`reply`]: polyrpc_core::session::Server::reply
//! [`send`]: polyrpc_core::session::Client::send
//! [`session::Client`]: polyrpc_core::session::Client
//! [`session::Server`]: polyrpc_core::session::Server
//! [`session::client::Streaming`]: polyrpc_core::session::client::Streaming
//! [`streaming`]: polyrpc_core::session::Server::streaming
//! [`CallId`]: polyrpc_core::CallId
//! [`Descriptor`]: polyrpc_core::Descriptor
//! [`Descriptor::prefer`]: polyrpc_core::Descriptor::prefer
//! [`Dialect::one_at_a_time`]: polyrpc_core::protocol::Dialect::one_at_a_time
//! [`Limits`]: polyrpc_core::Limits
//! [`Violation`]: polyrpc_core::Violation

//! Interface between a protocol and its driver, which moves its bytes.
//!
//! A session holds the state of one connection: what was negotiated, which calls await a reply. It is driven from
//! outside:
//!
//! * received bytes are appended to the inbox, then [`Server::next_event`] (or [`Client::next_event`]) is called until
//!   it returns `None`, which means "not enough bytes";
//! * commands ([`Server::reply`], [`Client::send`]) append bytes to the [`Outbox`](crate::Outbox);
//! * the driver writes the outbox, whenever it chooses.
//!
//! Pulling events provides backpressure: a driver that stops pulling stops reading.
//!
//! A unary call is one event and one command on each side. Only streaming calls pay for streaming:
//!
//! ```text
//!              server                                            client
//!   Open ─▶ Message* ─▶ End        request                     open ─▶ message* ─▶ end
//!   start ─▶ message* ─▶ finish    response                    Head ─▶ Message* ─▶ Reply
//! ```
//!
//! Both directions are independent, and either side may end the whole call early.
//!
//! A unary call may also have attached streams (brpc): the server [accepts](server::Streaming::accept_streams) them with
//! its reply, and each of them continues by itself, [`Message`](ServerEvent::Message) by message, until one side ends
//! it.
//!
//! # Traits
//!
//! A protocol implements what it has. One with unary calls and nothing else needs six methods on a server and three on a
//! client.
//!
//! | trait | for | implemented by |
//! |---|---|---|
//! | [`Server`] | calls and their replies | every protocol |
//! | [`server::Ticket`] | the protocol's rules for one call | every protocol |
//! | [`server::Housekeeping`] | memory, time and shutdown | every protocol; all methods have defaults |
//! | [`server::Streaming`] | messages of streaming calls | HTTP/1, HTTP/2, baidu_std |
//! | [`server::Pushing`] | messages that belong to no call | rpcx, rest_rpc |
//! | [`Client`] | calls and their replies | every protocol |
//! | [`client::Streaming`] | opened calls, subscriptions | gRPC, gRPC-Web, Connect, baidu_std, rest_rpc, WebSocket |

mod attached_streams;
pub mod client;
mod event;
mod limits;
mod refusals;
pub mod server;
mod violation;

pub use self::attached_streams::{OfferedStreams, StreamOptions};
pub use self::client::Client;
pub use self::event::{ClientEvent, Handover, NotFound, RequestHead, ServerEvent, Verdict};
pub use self::limits::{Limits, SlowPeerGuard};
pub use self::refusals::{RefusalCause, Refusals, UnreportedRefusals};
pub use self::server::Server;
pub use self::violation::{Violation, ViolationKind};

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
//!   begin ─▶ message* ─▶ finish    response                    Head ─▶ Message* ─▶ Reply
//! ```
//!
//! Both directions are independent, and either side may end the whole call early.
//!
//! A unary call may also have attached streams (brpc): the server [accepts](Server::accept_streams) them with its
//! reply, and each of them continues by itself, [`Message`](ServerEvent::Message) by message, until one side ends it.

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

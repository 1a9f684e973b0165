//! Where bytes come from: addresses, listening sockets, streams.

mod address;
mod behind_http;
mod carried;
mod dialing;
mod inbox;
mod listener;
mod outgoing;
pub(crate) mod scratch;
mod socket;
mod stream;
mod transport;
mod tunnel;
mod unix;

pub use address::Address;
pub(crate) use behind_http::connect_behind_http;
pub(crate) use carried::{Carried, CarriedSink, CarriedSource};
pub(crate) use dialing::Dialing;
pub(crate) use inbox::Inbox;
pub(crate) use listener::{Listener, Listening};
pub(crate) use outgoing::{outgoing_v4, outgoing_v6};
pub(crate) use socket::{DIALLED, Socket, keep_alive};
pub(crate) use stream::{ReadHalf, Source, Stream, WriteHalf};
pub(crate) use transport::Transport;

//! Where bytes come from: addresses, listening sockets, streams.

mod address;
mod inbox;
mod listener;
pub(crate) mod scratch;
mod stream;
mod transport;
mod tunnel;

pub use address::Address;
pub(crate) use inbox::Inbox;
pub(crate) use listener::Listener;
pub(crate) use stream::{ReadHalf, Source, Stream, WriteHalf};
pub(crate) use transport::Transport;

//! Transports: addresses, listening sockets, streams. From bottom to top: the read trait ([`Source`]) and its buffer
//! ([`Inbox`]), sockets, [`tls`] over any of them, [`Stream`], streams over datagrams ([`kcp`], [`quic`]), WebSockets,
//! listener and connector.

mod address;
mod outgoing;

mod inbox;
pub(crate) mod scratch;
mod source;

mod datagram_stream;
mod eviction;
mod socket;
mod unix;

#[cfg(not(feature = "tls"))]
pub(crate) mod no_tls;
#[cfg(feature = "tls")]
pub mod tls;

mod stream;

#[cfg(feature = "kcp")]
pub mod kcp;
#[cfg(feature = "quic")]
pub mod quic;

mod behind_http;
mod tunnel;
mod upgradable_stream;

mod listener;
mod transport_connector;

pub use self::address::Address;

pub(crate) use self::behind_http::connect_behind_http;
pub(crate) use self::datagram_stream::{DatagramSink, DatagramSource, DatagramStream};
pub(crate) use self::eviction::{Evictable, EvictionClass};
pub(crate) use self::inbox::{Inbox, ReadSize};
pub(crate) use self::listener::{DeliveryFuture, Listener, TransportConfig};
#[cfg(not(feature = "tls"))]
pub(crate) use self::no_tls as tls;
pub(crate) use self::outgoing::{outgoing_v4, outgoing_v6};
pub(crate) use self::socket::{CLIENT_KEEPALIVE_TIME, Socket, keep_alive};
pub(crate) use self::source::Source;
pub(crate) use self::stream::{ReadHalf, Stream, TlsStream, WriteHalf};
pub(crate) use self::transport_connector::TransportConnector;
pub(crate) use self::upgradable_stream::UpgradableStream;

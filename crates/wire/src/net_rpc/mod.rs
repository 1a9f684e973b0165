//! Go's `net/rpc` and its derivatives `net/rpc/jsonrpc` and the rpcx of 2016, both sides.
#![doc = include_str!("README.md")]

mod codec;
mod frame;
mod session;

mod credential;
mod http_handshake;
mod page;
mod pending_calls;
mod status;

#[cfg(test)]
mod tests;

pub use codec::Codec;
pub use http_handshake::CONNECT_PATH;
pub use page::page;
pub use session::{Client, ClientConfig, Server, ServerConfig, Ticket};

pub(crate) use http_handshake::CONNECTED;
pub(crate) use page::PAGE_PATH;

use polyrpc_core::protocol::{Connect, Dialect, Parameter, Parameters, Scheme};
use polyrpc_core::{Descriptor, Detection};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme::new("net-rpc")],
    parameters: &[Parameter::new(
        "codec",
        &["gob", "json", "msgpack", "protobuf", "gencode", "colfer", "bson"],
        "encoding of headers and bodies",
    )],
    dialect,
    connect: Some(Connect { path: CONNECT_PATH, by_session: true }),
    ..Descriptor::new("net_rpc", recognise)
};

fn dialect(scheme: &'static str, parameters: &Parameters) -> Result<Dialect, String> {
    let codec = Codec::selected_by(parameters);
    Ok(Dialect { format: Some(codec.format()), only_format: true, ..Dialect::new(scheme) })
}

/// Whether a connection that starts with `start` uses this protocol, with one of the codecs that can be detected: gob,
/// JSON or MessagePack.
pub fn recognise(start: &[u8]) -> Detection {
    Codec::recognise(start).map(|_| ())
}

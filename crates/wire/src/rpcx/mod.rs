//! rpcx: the protocol of the Go framework of the same name, both sides.
#![doc = include_str!("README.md")]

mod compressors;
mod frame;
mod panic;
mod session;
mod status;

#[cfg(test)]
mod tests;

pub use compressors::Compressors;
pub use frame::{MAX_METADATA, THRIFT};
pub use session::{Client, ClientConfig, Server, ServerConfig, Ticket};
pub use status::no_codec;

use polyrpc_core::protocol::{Capabilities, Connect, MetadataSupport, Scheme, by_magic};
use polyrpc_core::{Carrier, Descriptor, Detection, Format, Status};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme::new("rpcx")],
    connect: Some(Connect { path: CONNECT_PATH, by_session: false }),
    capabilities: Capabilities {
        metadata: MetadataSupport::Carried(Carrier::Map),
        most_metadata: MAX_METADATA,
        deadline: true,
        push: true,
        ..Capabilities::NONE
    },
    prefer,
    ..Descriptor::new("rpcx", recognise)
};

/// Path at which servers switch from HTTP to rpcx, by `CONNECT` or a WebSocket (rpcx `share/share.go`).
pub const CONNECT_PATH: &str = "/_rpcx_";

/// rpcx has no number for FlatBuffers.
fn prefer(format: Format) -> Format {
    if format == Format::FlatBuffers { Format::Raw } else { format }
}

/// Returns the failure for an error text of rpcx, which JSON-RPC has too.
#[cold]
pub(crate) fn failure(text: &str) -> Status {
    status::read(text)
}

/// Whether a connection that starts with `start` uses this protocol.
pub fn recognise(start: &[u8]) -> Detection {
    by_magic(&[frame::MAGIC], start)
}

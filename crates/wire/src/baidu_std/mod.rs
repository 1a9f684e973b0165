#![doc = include_str!("README.md")]

mod body;
mod frame;
mod meta;
mod metadata;
mod session;
mod stream;

#[cfg(test)]
mod tests;

pub use meta::MAX_USER_FIELDS;
pub use session::{Client, ClientConfig, Server, ServerConfig, Ticket};
pub use stream::StreamLimits;

use polyrpc_core::protocol::{Capabilities, MetadataSupport, Scheme, Streams, by_magic};
use polyrpc_core::{Carrier, Descriptor, Detection, Format, Json};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme::new("baidu-std")],
    capabilities: Capabilities {
        metadata: MetadataSupport::Carried(Carrier::Map),
        most_metadata: MAX_USER_FIELDS,
        attachments: true,
        deadline: true,
        streams: Streams::Attached,
        ..Capabilities::NONE
    },
    prefer,
    ..Descriptor::new("baidu_std", recognise)
};

/// brpc's content types do not include MessagePack.
fn prefer(format: Format) -> Format {
    if format == Format::MessagePack { Format::Json(Json::Brpc) } else { format }
}

/// Whether a connection that starts with `start` uses this protocol. Frames of streams are accepted too: they share
/// connections with calls.
pub fn recognise(start: &[u8]) -> Detection {
    by_magic(frame::Kind::Rpc.magic(), start).or(|| by_magic(frame::Kind::Stream.magic(), start))
}

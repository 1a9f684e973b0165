#![doc = include_str!("README.md")]

mod directory;
mod frame;
mod session;
pub mod status;

#[cfg(test)]
mod tests;

pub use directory::{NumberCollision, ServiceDirectory, ServiceHash, service_id};
pub use frame::Magic;
pub use session::{Client, ClientConfig, Server, ServerConfig, Ticket};

use polyrpc_core::protocol::{Capabilities, Parameter, Parameters, Scheme, by_magic};
use polyrpc_core::{Descriptor, Detection};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme::new("fb-rpc")],
    parameters: &[Parameter::new(
        "version",
        &["frpc", "frpc-two-dots", "brpc", "brpc-two-dots"],
        "magic of frames, and the number of dots in the hashed service name",
    )],
    capabilities: Capabilities { attachments: true, numbers_methods: true, ..Capabilities::NONE },
    ..Descriptor::new("fb_rpc", recognise)
};

/// Returns the version of fb_rpc that the parameters of a URL select.
pub fn version(parameters: &Parameters) -> (Magic, ServiceHash) {
    match parameters.value("version") {
        Some("frpc-two-dots") => (Magic::Frpc, ServiceHash::TwoDots),
        Some("brpc") => (Magic::Brpc, ServiceHash::OneDot),
        Some("brpc-two-dots") => (Magic::Brpc, ServiceHash::TwoDots),
        _ => (Magic::Frpc, ServiceHash::OneDot),
    }
}

/// Whether a connection that starts with `start` uses this protocol, with either magic.
pub fn recognise(start: &[u8]) -> Detection {
    by_magic(Magic::Frpc.letters(), start).or(|| by_magic(Magic::Brpc.letters(), start))
}

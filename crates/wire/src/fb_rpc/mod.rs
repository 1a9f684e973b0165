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

use polyrpc_core::protocol::{Capabilities, Dialect, MetadataSupport, Scheme, by_magic};
use polyrpc_core::{Descriptor, Detected};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme::new("fb-rpc")],
    dialect: |scheme, words| variant(words).map(|_| Dialect::new(scheme).with_words(words)),
    capabilities: Capabilities {
        metadata: MetadataSupport::Dropped,
        attachments: true,
        numbers_methods: true,
        ..Capabilities::NONE
    },
    ..Descriptor::new("fb_rpc", recognise)
};

/// Returns the variant of fb_rpc for the words of a URL: `two-dots` selects the hash, `brpc` the magic, `pr3197` both.
///
/// # Errors
///
/// If there is any other word.
pub fn variant<W: AsRef<str>>(words: &[W]) -> Result<(Magic, ServiceHash), String> {
    let mut variant = (Magic::default(), ServiceHash::default());
    for word in words {
        match word.as_ref() {
            "pr3197" => variant = (Magic::Brpc, ServiceHash::TwoDots),
            "brpc" => variant.0 = Magic::Brpc,
            "two-dots" => variant.1 = ServiceHash::TwoDots,
            other => return Err(Dialect::unknown(other)),
        }
    }
    Ok(variant)
}

/// Whether a connection that starts with `start` uses this protocol, with either magic.
pub fn recognise(start: &[u8]) -> Detected {
    by_magic(Magic::Frpc.letters(), start).or(|| by_magic(Magic::Brpc.letters(), start))
}

//! Basics of HTTP for all protocols over it, and calls as plain HTTP.
#![doc = include_str!("README.md")]

pub(crate) mod field;
pub(crate) mod head;
pub(crate) mod path;

pub(crate) mod cors;

pub(crate) mod h1;
pub mod h2;
pub mod websocket;

pub(crate) mod mapping;
pub mod rule;

pub(crate) mod client;

pub use client::{Client, ClientConfig};
pub use cors::Cors;
pub use h1::frame::MAX_FIELDS;
pub use mapping::{Health, Hosts, MethodCatalog, Probes, ServerConfig};

use polyrpc_core::protocol::{Capabilities, Dialect, MetadataSupport, Parameter, Parameters, Ports, Scheme};
use polyrpc_core::{Carrier, Descriptor, Format, Json};

/// Descriptor of calls over HTTP/1.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme { name: "http", secure: Some("https") }],
    default_ports: Some(Ports { plain: 80, secure: 443 }),
    parameters: &[Parameter::new(
        "dialect",
        &["path", JSON_RPC],
        "whether the method is named in the request path or in a JSON-RPC 2.0 message",
    )],
    dialect: |scheme, _| Ok(Dialect { one_at_a_time: true, ..Dialect::new(scheme) }),
    alpn: Some("http/1.1"),
    capabilities: Capabilities {
        metadata: MetadataSupport::Carried(Carrier::HttpRequest),
        deadline: true,
        ..Capabilities::NONE
    },
    prefer,
    ..Descriptor::new("http", h1::recognise)
};

/// Whether the parameters of a URL select JSON-RPC 2.0 instead of the method in the path.
pub fn is_json_rpc(parameters: &Parameters) -> bool {
    parameters.has("dialect", JSON_RPC)
}

const JSON_RPC: &str = "json-rpc";

/// Text of a client's failure if the server expects TLS.
pub const TLS_EXPECTED: &str =
    "the server expects TLS: call it by grpcs://, https://, or with +tls after the protocol";

/// HTTP uses brpc's JSON dialect, and has no MessagePack.
fn prefer(format: Format) -> Format {
    match format {
        Format::MessagePack | Format::Protobuf => Format::Json(Json::Brpc),
        format => format,
    }
}

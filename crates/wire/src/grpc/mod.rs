//! gRPC, independent of the HTTP version, and its client over HTTP/2 (`doc/PROTOCOL-HTTP2.md` of grpc/grpc). The server
//! is [`http_server`](crate::http_server).
//!
//! `request.rs` parses the head of a request, `incoming.rs` its messages; `block.rs` writes the head of a response;
//! `frame.rs` frames messages; `outgoing.rs` assembles responses. `metadata.rs`, `timeout.rs` and `coding.rs` handle
//! single headers, `status.rs` failures. `dialect.rs` distinguishes gRPC-Web from gRPC; `base64.rs` and `trailers.rs`
//! decode the text and the trailers of its bodies. `invariants.rs` asserts invariants.

pub(crate) mod coding;
pub(crate) mod metadata;
pub(crate) mod status;
pub(crate) mod timeout;

pub(crate) mod base64;
pub(crate) mod dialect;
pub(crate) mod frame;
pub(crate) mod framing;
pub(crate) mod trailers;

pub(crate) mod block;
pub(crate) mod incoming;
pub(crate) mod outgoing;
pub(crate) mod request;

pub mod connect;

mod client;

pub(crate) mod invariants;

pub(crate) use client::USER_AGENT;
pub use client::{Client, ClientConfig};
pub use incoming::decompression_failed;

use polyrpc_core::protocol::{
    Capabilities, Dialect, MetadataSupport, Parameter, Parameters, Scheme, Streams,
};
use polyrpc_core::{Carrier, Descriptor};

/// Descriptor of the protocol, including gRPC-Web and Connect as further schemes.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme { name: "grpc", secure: Some("grpcs") }, Scheme::new(WEB), Scheme::new(CONNECT)],
    parameters: &[
        Parameter {
            schemes: &[WEB, CONNECT],
            ..Parameter::new("http_version", &["1.1", "2"], "version of HTTP")
        },
        Parameter {
            schemes: &[CONNECT],
            ..Parameter::new(
                "http_method",
                &["post", "get"],
                "HTTP method of unary calls; get is for methods declared free of side effects",
            )
        },
    ],
    dialect,
    alpn: Some("h2"),
    capabilities: Capabilities {
        metadata: MetadataSupport::Carried(Carrier::Grpc),
        deadline: true,
        streams: Streams::Calls,
        refuses_unprocessed: true,
        resource_exhausted: true,
        ..Capabilities::NONE
    },
    ..Descriptor::new("grpc", crate::http::h2::recognise)
};

/// Scheme of gRPC-Web, which uses HTTP/1.1 unless the URL has `http_version=2`.
pub const WEB: &str = "grpc-web";

/// Scheme of Connect, which uses HTTP/1.1 unless the URL has `http_version=2`.
pub const CONNECT: &str = "connect";

fn dialect(scheme: &'static str, parameters: &Parameters) -> Result<Dialect, String> {
    let within_http1 = matches!(scheme, WEB | CONNECT) && !parameters.has("http_version", "2");
    Ok(Dialect { one_at_a_time: within_http1, within_http1, ..Dialect::new(scheme) })
}

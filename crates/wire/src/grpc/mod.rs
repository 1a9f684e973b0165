//! gRPC, independent of the HTTP version, and its client over HTTP/2 (`doc/PROTOCOL-HTTP2.md` of grpc/grpc). The server
//! is [`http_server`](crate::http_server).
//!
//! `request.rs` parses the head of a request, `incoming.rs` its messages; `block.rs` writes the head of a response;
//! `frame.rs` frames messages; `outgoing.rs` assembles responses. `metadata.rs`, `timeout.rs` and `coding.rs` handle
//! single headers, `status.rs` failures. `dialect.rs` distinguishes gRPC-Web from gRPC; `base64.rs` and `trailers.rs`
//! decode the text and the trailers of its bodies. `invariants.rs` asserts invariants.
//!
//! `framing.rs`, `request_reader.rs` and `request_writer.rs` are the traits of a dialect with a framing of its own,
//! `framed_dialect.rs` is its entry in the list of them.

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
pub(crate) mod request_reader;

mod client;
pub(crate) mod request_writer;

mod framed_dialect;

pub mod connect;

pub(crate) mod invariants;

pub(crate) use client::USER_AGENT;
pub use client::{Client, ClientConfig};
pub use incoming::decompression_failed;
pub use request_writer::ClientFraming;

use self::framed_dialect::FramedDialect;
use polyrpc_core::protocol::{
    Capabilities, Dialect, MetadataSupport, Parameter, Parameters, Scheme, Streams,
};
use polyrpc_core::{Carrier, Descriptor};

/// The dialects with a framing of their own. Their schemes and parameters are in the descriptor, too.
pub(crate) static FRAMED: &[FramedDialect] = &[connect::DIALECT];

/// Descriptor of the protocol, with its dialects as further schemes.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme { name: GRPC, secure: Some("grpcs") }, Scheme::new(WEB), Scheme::new(connect::SCHEME)],
    parameters: &[
        Parameter {
            schemes: &[WEB, connect::SCHEME],
            ..Parameter::new("http_version", &["1.1", "2"], "version of HTTP")
        },
        connect::HTTP_METHOD,
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

const GRPC: &str = "grpc";

/// Scheme of gRPC-Web.
pub const WEB: &str = "grpc-web";

/// Dialects use HTTP/1.1 unless the URL has `http_version=2`.
fn dialect(scheme: &'static str, parameters: &Parameters) -> Result<Dialect, String> {
    let within_http1 = scheme != GRPC && !parameters.has("http_version", "2");
    Ok(Dialect { one_at_a_time: within_http1, within_http1, ..Dialect::new(scheme) })
}

/// Returns the framing of a client's calls in the dialect that a URL selects; `None` if that is gRPC's or gRPC-Web's.
pub fn client_framing(dialect: &Dialect) -> Option<ClientFraming> {
    let framed = FRAMED.iter().find(|framed| framed.scheme == dialect.scheme)?;
    Some((framed.client)(&dialect.parameters))
}

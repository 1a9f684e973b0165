//! The Connect protocol: calls as plain HTTP; a single message is the whole body, several are prefixed
//! (<https://connectrpc.com/docs/protocol>).
#![doc = include_str!("README.md")]

pub(crate) mod frame;
pub(crate) mod kind;
pub(crate) mod status;

pub(crate) mod query;
pub(crate) mod request;

pub(crate) mod answer;

pub(crate) mod client;
pub(crate) mod response;

pub use client::UnaryMethod;

use polyrpc_core::protocol::Parameter;

use super::framed_dialect::FramedDialect;

/// Scheme of the protocol, which uses HTTP/1.1 unless the URL has `http_version=2`.
pub const SCHEME: &str = "connect";

/// Entry of the protocol in gRPC's list of dialects.
pub(super) const DIALECT: FramedDialect = FramedDialect {
    scheme: SCHEME,
    client: |parameters| UnaryMethod::selected_by(parameters).into(),
    reader: &request::Reader,
};

/// Parameter of URLs that selects the [`UnaryMethod`].
pub(super) const HTTP_METHOD: Parameter = Parameter {
    schemes: &[SCHEME],
    ..Parameter::new(
        "http_method",
        &["post", "get"],
        "HTTP method of unary calls; get is for methods declared free of side effects",
    )
};

#[cfg(test)]
mod tests;

//! Server side of an HTTP connection: calls of gRPC, gRPC-Web, plain HTTP and JSON-RPC, over HTTP/1 ([`h1`]), in order,
//! and HTTP/2 ([`h2`]).

mod answer;
mod request;
mod upgrade;

pub mod h1;
pub mod h2;

pub use request::Upgrade;

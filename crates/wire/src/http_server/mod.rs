//! The server's side of a connection of HTTP: calls of gRPC, gRPC-Web, plain HTTP and JSON-RPC, in one order over HTTP/1
//! ([`h1`]) and HTTP/2 ([`h2`]).

mod request;
mod upgrade;

pub mod h1;
pub mod h2;

pub use request::Upgrade;

//! gRPC-Web: gRPC for those who see no trailers of HTTP, which is what browsers are (`doc/PROTOCOL-WEB.md` of
//! grpc/grpc).
#![doc = include_str!("README.md")]

mod answer;
mod base64;
mod cors;
mod dialect;
mod fields;

pub use cors::Cors;

pub(crate) use answer::{head, message, trailers};
pub(crate) use base64::Decoder;
pub(crate) use cors::{Preflight, expose};
pub(crate) use dialect::Dialect;
pub(crate) use fields::fields;

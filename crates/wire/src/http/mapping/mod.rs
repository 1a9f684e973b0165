//! Requests of plain HTTP as calls: brpc's mapping, the rules of a `.proto`, rpcx's gateway and JSON-RPC, the same over
//! HTTP/1 and HTTP/2.

mod accept;
pub(crate) mod asked;
pub(crate) mod browser;
pub(crate) mod brpc;
pub(crate) mod config;
pub(crate) mod content_type;
pub(crate) mod exchange;
pub(crate) mod failure;
pub(crate) mod gateway;
pub(crate) mod health;
pub(crate) mod query;
pub(crate) mod refused;
pub(crate) mod request;
mod routed;
pub(crate) mod status;

pub use browser::Hosts;
pub use config::{Offers, ServerConfig};
pub use health::{Health, Probes};

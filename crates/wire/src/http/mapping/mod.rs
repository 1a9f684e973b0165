//! Mappings from plain HTTP requests to calls: brpc's mapping, the rules of a `.proto`, rpcx's gateway and JSON-RPC,
//! the same over HTTP/1 and HTTP/2.

pub(crate) mod config;
mod hosts;

pub(crate) mod content_type;
pub(crate) mod query;
pub(crate) mod status;
pub(crate) mod text;

pub(crate) mod gateway;
pub(crate) mod request;

mod accept;
pub(crate) mod brpc;
pub(crate) mod failure;
mod response;
mod routed;

pub(crate) mod answer;
pub(crate) mod browser;
mod check;
mod health;
pub(crate) mod rejection;

pub(crate) mod exchange;
pub(crate) mod request_kind;

pub use config::{Health, MethodCatalog, Probes, ServerConfig};
pub use hosts::Hosts;

//! The Connect protocol: calls as plain HTTP, one message as the whole body, several behind prefixes
//! (<https://connectrpc.com/docs/protocol>).
#![doc = include_str!("README.md")]

pub(crate) mod frame;
pub(crate) mod status;

pub(crate) mod query;
pub(crate) mod request;

pub(crate) mod answer;

pub(crate) mod client;
pub(crate) mod response;

pub use client::UnaryMethod;

#[cfg(test)]
mod tests;

//! The Connect protocol: calls as plain HTTP; a single message is the whole body, several are prefixed
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

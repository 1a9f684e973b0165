//! Server side of an HTTP/2 connection. `methods.rs` lists the methods whose calls are held until they are complete;
//! `invariants.rs` asserts invariants.

mod invariants;
mod methods;
mod session;

#[cfg(test)]
mod tests;

pub use methods::{DynamicMethods, Methods};
pub use session::{MAX_FIELDS, Server, ServerConfig, Ticket};

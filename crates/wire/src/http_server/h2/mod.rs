//! The server's side of a connection of HTTP/2. `methods.rs` tells which calls are worth waiting for until they are
//! whole; `audit.rs` what must always hold.

mod audit;
mod methods;
mod session;

#[cfg(test)]
mod tests;

pub use methods::Methods;
pub use session::{MAX_FIELDS, Server, ServerConfig, Ticket};

//! The server's side of a connection of HTTP/1.

mod order;
mod session;

#[cfg(test)]
mod tests;

pub use session::{Server, Ticket};

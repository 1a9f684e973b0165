//! The server's side of a connection of HTTP/1.

mod response_queue;
mod session;

#[cfg(test)]
mod tests;

pub use session::{Server, Ticket};

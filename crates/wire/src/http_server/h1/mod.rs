//! Server side of an HTTP/1 connection.

mod response_queue;
mod session;

#[cfg(test)]
mod tests;

pub use session::{Server, Ticket};

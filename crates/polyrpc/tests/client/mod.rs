//! Clients: calls, channels, clients made of clients, hooks.

mod breaker;
mod calls;
mod channel;
mod combo;
mod dropped;
mod fanout;
mod hooks;

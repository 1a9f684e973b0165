//! Ready-made parts to stand around calls.
//!
//! | | what it is | where it goes |
//! |---|---|---|
//! | [`auth`] | judges of tokens, of users and passwords | [`Listen::authenticate`](crate::server::Listen::authenticate) |
//! | [`IpList`] | who may connect, by address | [`Server::hook`](crate::Server::hook) |
//! | [`RateLimit`] | how often calls are taken, or connections | [`Server::layer`](crate::Server::layer), or as a hook |

pub mod auth;

mod ip_list;

mod rate_limit;

pub use ip_list::{IpList, UnknownNetwork};
pub use rate_limit::{ConnectionRate, Per, RateLimit};

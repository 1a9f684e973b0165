//! Calls as plain HTTP by the `google.api.http` options of a `.proto` (`google/api/http.proto` of googleapis).
//!
//! [`Routes`] are made once of the rules that services declare. A request's verb and path find a [`Route`] in them
//! and the values of its variables; [`Found::message`] puts them together with the query and the body to the
//! method's request in canonical JSON, and [`Route::response`] takes what the rule wants out of the reply.

mod error;
mod message;
mod routes;
mod rule;
mod template;

pub use error::Error;
pub use message::RequestMappingError;
pub use routes::{Lookup, MatchedRoute, Route, Routes};

#[cfg(test)]
mod tests;

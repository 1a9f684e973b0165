//! HTTP mapping of calls by the `google.api.http` options of a `.proto` (`google/api/http.proto` of googleapis).
//!
//! [`Routes`] are built once from the rules that services declare. A request's HTTP method and path select a [`Route`]
//! and the values of its variables; [`MatchedRoute::message`] combines them with the query and the body into the method's
//! request in ProtoJSON, and [`Route::response`] extracts the part of the reply that the rule selects.

mod binding;
mod error;
mod http_rule;
mod message;
mod routes;
mod template;
mod variable;

pub use binding::{Binding, BindingBody};
pub use error::Error;
pub use message::RequestMappingError;
pub use routes::{Lookup, MatchedRoute, Route, Routes};
pub use variable::Variable;

#[cfg(test)]
mod tests;

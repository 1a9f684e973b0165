//! The callee's side of a call: services of methods, plain functions, and what a handler gets and gives.

mod function;
mod method;
mod route;
mod router;
mod streaming_method;
mod trace_span;

pub use crate::call::{Peer, Pusher, ReplyOptions, TlsInfo, Trailers};
pub use function::{Fallible, Function, IntoOutcome, Plain};
pub use router::{Service, ServiceBuilder};

pub(crate) use method::Method;
pub(crate) use router::Router;

pub(crate) use route::{MethodRole, Route, queued};

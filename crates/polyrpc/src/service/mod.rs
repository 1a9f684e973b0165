//! Server side of a call: services with methods, functions, and the arguments and results of handlers.

mod function;
mod method;
mod method_info;
mod route;
mod router;
mod streaming_method;
mod trace_span;

pub use crate::call::{Peer, Pusher, ReplyOptions, TlsInfo, Trailers};
pub use function::{Fallible, Function, IntoOutcome, Plain};
pub use method_info::MethodInfo;
pub use router::{Service, ServiceBuilder};

pub(crate) use method::Method;
pub(crate) use router::Router;

pub(crate) use route::{MethodRole, Route, queued_calls};

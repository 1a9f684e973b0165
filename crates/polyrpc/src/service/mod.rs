//! What answers a call: services of methods, plain functions, and the [`Router`] that finds them.

mod function;
mod method;
mod route;
mod router;
mod streaming_method;
mod trace_span;

pub use crate::call::{
    Accepted, Context, Ending, Handling, Peer, Pusher, ReplyOptions, Secured, Shape, Trailers,
};
pub use function::{Answer, Fallible, Function, Outcome, Owned, Plain, Returned, WithContext};
pub use method::Method;
pub use router::{Router, Service, ServiceBuilder};

pub(crate) use route::{MethodRole, Route, queued};

//! The callee's side of a call: services of methods, plain functions, and the [`Router`] that finds them.

mod function;
mod method;
mod route;
mod router;
mod streaming_method;
mod trace_span;

pub use crate::call::{
    AcceptedStreams, Context, Outcome, Peer, Pusher, ReplyOptions, ResponseFuture, StreamType, TlsInfo,
    Trailers,
};
pub use function::{
    Fallible, Function, IntoOutcome, IntoReply, Owned, Plain, WithContext, WithReturnedContext,
};
pub use method::Method;
pub use router::{Router, Service, ServiceBuilder};

pub(crate) use route::{MethodRole, Route, queued};

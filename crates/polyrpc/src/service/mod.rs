//! What answers a call: services of methods, plain functions, and the [`Router`] that finds them.

mod context;
mod function;
mod method;
mod peer;
mod router;
mod streamed;

pub use context::{Context, Pusher, ReplyOptions, Trailers};
pub use function::{Function, Outcome};
pub use method::{Ending, Handling, Method, Shape};
pub use peer::{Peer, Secured};
pub use router::{Router, Service, ServiceBuilder};

pub(crate) use context::{ConnectionFacts, PushQueue};

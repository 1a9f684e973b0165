//! What answers a call: services of methods, plain functions, and the [`Router`] that finds them.

mod accept;
mod context;
mod entry;
mod function;
mod method;
mod peer;
mod router;
mod site;
mod streamed;
mod traced;
mod way;

pub use accept::Accepted;
pub use context::{Context, Pusher, ReplyOptions, Trailers};
pub use function::{Answer, Fallible, Function, Outcome, Owned, Plain, Returned, WithContext};
pub use method::{Ending, Handling, Method, Shape};
pub use peer::{Peer, Secured};
pub use router::{Router, Service, ServiceBuilder};

pub(crate) use accept::{AcceptedStream, Offer};
pub(crate) use context::{ConnectionFacts, PushQueue};
pub(crate) use entry::{Asked, Entry, Role, queued};
pub(crate) use site::Site;
pub(crate) use streamed::send;
pub(crate) use way::Way;

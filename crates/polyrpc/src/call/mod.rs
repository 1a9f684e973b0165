//! A call, for both sides: what its caller says with it ([`Request`], [`Options`]), what its handler knows of it
//! ([`Context`]), how it ends ([`Ending`]), its messages ([`streaming`]), and what it hands on to the calls that its handler
//! makes ([`task`]). Nothing here knows a client or a server.

mod redacted;

mod cancel;
mod outgoing;
mod request;
#[cfg(feature = "otel")]
mod target;

mod connection;
mod facts;
mod method_name;
mod peer;

mod ending;
mod offer;
mod site;
mod way;

mod accept;
mod context;

pub mod streaming;
pub mod task;

pub use self::cancel::Cancel;
pub use self::context::{Context, Pusher, ReplyOptions, Trailers};
pub use self::ending::{Accepted, Ending, Handling, Shape};
pub use self::facts::{Calls, Connection, Facts, Used};
pub use self::outgoing::Outgoing;
pub use self::peer::{Peer, Secured};
pub use self::request::{Options, Request, Response, Signature};

pub(crate) use self::connection::{ConnectionFacts, PushQueue};
pub(crate) use self::ending::AcceptedStream;
pub(crate) use self::facts::{Countable, Totals};
pub(crate) use self::method_name::{Asked, MethodName};
pub(crate) use self::offer::Offer;
pub(crate) use self::redacted::{RedactedMetadata, is_secret, redacted};
pub(crate) use self::site::Site;
#[cfg(feature = "otel")]
pub(crate) use self::target::Target;
pub(crate) use self::way::Way;

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

mod call_kind;
mod call_site;
mod outcome;
mod stream_offer;

mod accept;
mod context;

pub mod streaming;
pub mod task;

pub use self::cancel::Cancel;
pub use self::context::{Context, Pusher, ReplyOptions, Trailers};
pub use self::facts::{Calls, Connection, Facts, Used};
pub use self::outcome::{Accepted, Ending, Handling, Shape};
pub use self::outgoing::Outgoing;
pub use self::peer::{Peer, Secured};
pub use self::request::{Options, Request, Response, Signature};

pub(crate) use self::call_kind::CallKind;
pub(crate) use self::call_site::CallSite;
pub(crate) use self::connection::{ConnectionFacts, PushQueue};
pub(crate) use self::facts::{Countable, Totals};
pub(crate) use self::method_name::{MethodName, RequestedMethod};
pub(crate) use self::outcome::AcceptedStream;
pub(crate) use self::redacted::{RedactedMetadata, is_secret, redacted};
pub(crate) use self::stream_offer::StreamOffer;
#[cfg(feature = "otel")]
pub(crate) use self::target::Target;

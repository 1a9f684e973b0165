//! A call, for both sides: its options as its caller sets them ([`Request`], [`CallOptions`]), its handler's view of it
//! ([`Context`]), how it ends ([`Outcome`]), its messages ([`streaming`]), and what it propagates to the calls that its
//! handler makes ([`propagation`]). Nothing here depends on a client or a server.

mod redacted;

mod cancel;
mod outgoing;
mod request;
mod target;

mod connection;
mod method_name;
mod peer;
mod server_info;

mod call_kind;
mod call_site;
mod outcome;
mod stream_offer;

mod accept;
mod context;
mod relayed_metadata;

pub mod propagation;
pub(crate) mod streaming;

pub use self::cancel::CancelHandle;
pub use self::context::{Context, Pusher, ReplyOptions, Trailers};
pub use self::outcome::{Outcome, StreamType};
pub use self::outgoing::OutgoingCall;
pub use self::peer::{Peer, TlsInfo};
pub use self::request::{CallOptions, Request, Response, StubMethod};
pub use self::server_info::{Calls, Connection, ServerInfo};

pub(crate) use self::call_kind::CallKind;
pub(crate) use self::call_site::CallSite;
pub(crate) use self::connection::{ConnectionFacts, PushQueue};
pub(crate) use self::method_name::{MethodName, RequestedMethod};
pub(crate) use self::outcome::{AcceptedStream, AcceptedStreams, OutcomeKind, ResponseFuture};
pub(crate) use self::redacted::{RedactedMetadata, is_secret, redact};
pub(crate) use self::relayed_metadata::{remove_unsupported, removed_metadata_count};
pub(crate) use self::server_info::{Countable, ResourceUsage, Totals};
pub(crate) use self::stream_offer::StreamOffer;
pub(crate) use self::target::Target;

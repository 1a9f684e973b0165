//! Ready-made layers, hooks and authenticators. Most of the layers work on both sides: observing, mirroring and
//! compressing calls is the same for a client and a server, whatever the protocol.
//!
//! | | purpose | client | server |
//! |---|---|---|---|
//! | [`Metrics`] | counts calls and measures their durations; Prometheus and brpc pages | ✓ | ✓ |
//! | [`Spans`] | spans within W3C's traces, to a function of the program's own | ✓ | ✓ |
//! | [`AccessLog`] | a line for each call | ✓ | ✓ |
//! | [`Mirror`] | sends copies of requests elsewhere | ✓ | ✓ |
//! | [`Compress`] | compresses messages above a size | ✓ | ✓ |
//! | [`bearer()`] | adds tokens that a function fetches | ✓ | |
//! | [`auth`] | authenticators for tokens, passwords | | [`Listen::authenticate`](crate::server::Listen::authenticate) |
//! | [`IpList`] | allows or denies peer addresses | | [`Server::hook`](crate::Server::hook) |
//! | [`RateLimit`] | limits the rate of calls or connections | ✓ | ✓, or as a hook |
//!
//! Add them by [`client::Builder::layer`](crate::client::Builder::layer) and [`Server::layer`](crate::Server::layer).
//! To observe calls yourself, implement [`Observe`], once for both sides. The crate `polyrpc-otel` has a layer for
//! OpenTelemetry's API.

mod observe;

mod call_tracer;

mod metrics;

mod spans;

mod access_log;

mod mirror;

mod compress;

mod bearer;

pub mod auth;

mod ip_list;

mod rate_limit;

mod sampler;

pub use self::access_log::{AccessLog, LogLine};
pub use self::bearer::{Token, bearer};
pub use self::call_tracer::CallTracer;
pub use self::compress::Compress;
pub use self::ip_list::IpList;
pub use self::metrics::{MethodStats, Metrics};
pub use self::mirror::Mirror;
pub use self::observe::{CallEnd, CallStart, Observe};
pub use self::rate_limit::RateLimit;
pub use self::spans::{Span, Spans};
pub use crate::running::{
    RunningCall, RunningPoll, current_polls, is_stack_label, label_stacks, watch_calls,
};

pub(crate) use self::metrics::pages;

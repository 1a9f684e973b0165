//! Ready-made parts to stand around calls. Most of them are for both sides: what watches calls, mirrors them or says how
//! they are compressed is the same for a client and a server, whatever protocol the calls go by.
//!
//! | | what it is | client | server |
//! |---|---|---|---|
//! | [`Metrics`] | counts calls and how long they take; Prometheus and brpc pages | ✓ | ✓ |
//! | [`Spans`] | spans within W3C's traces, to a function of the program's own | ✓ | ✓ |
#![cfg_attr(feature = "otel", doc = "| [`OpenTelemetry`] | spans, metrics by OpenTelemetry's API | ✓ | ✓ |")]
//! | [`AccessLog`] | a line for each call | ✓ | ✓ |
//! | [`Mirror`] | sends copies of requests elsewhere | ✓ | ✓ |
//! | [`Compress`] | compresses what is worth it | ✓ | ✓ |
//! | [`Alias`] | calls methods by other names | ✓ | [`Server::alias`](crate::Server::alias) |
//! | [`Bearer`] | calls with tokens that a function fetches | ✓ | |
//! | [`auth`] | judges of tokens, of users and passwords | | [`Listen::authenticate`](crate::server::Listen::authenticate) |
//! | [`IpList`] | who may connect, by address | | [`Server::hook`](crate::Server::hook) |
//! | [`RateLimit`] | how often calls are made or taken, or connections | ✓ | ✓, or as a hook |
//!
//! They are put in place by [`client::Builder::layer`](crate::client::Builder::layer) and
//! [`Server::layer`](crate::Server::layer). What a program wants to watch itself, it [observes](Observe) on both sides with one piece of code.

mod observe;

mod metrics;

mod spans;

#[cfg(feature = "otel")]
mod otel;

mod access_log;

mod mirror;

mod compress;

mod alias;

mod bearer;

pub mod auth;

mod ip_list;

mod rate_limit;

mod share;

pub use self::access_log::{AccessLog, LogLine, LoggedCall};
pub use self::alias::Alias;
pub use self::bearer::{Bearer, Token};
pub use self::compress::Compress;
pub use self::ip_list::{IpList, UnknownNetwork};
#[cfg(feature = "metrics")]
pub use self::metrics::Recorder;
pub use self::metrics::{CountedCall, Method, Metrics};
pub use self::mirror::{Mirror, MirrorStats};
pub use self::observe::{CallEnd, CallStart, Observe};
#[cfg(feature = "otel")]
pub use self::otel::OpenTelemetry;
pub use self::rate_limit::{ConnectionRate, RateLimit, RateLimitKey};
pub use self::spans::{Span, Spans, TracedCall};
pub use crate::layer::Side;

pub(crate) use self::metrics::pages;

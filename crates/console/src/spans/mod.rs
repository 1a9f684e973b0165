//! Recorded calls: brpc's rpcz, for every protocol and both sides.
//!
//! A [`collector`] samples calls, among those that the metrics of observed servers and clients count, and makes a
//! [`record`] of each. An ended one is a [`span`] in the [`store`], which the page searches. The spans of a trace are a
//! [`tree`].

mod span;

mod store;

mod settings;

mod record;

mod collector;

mod tree;

pub(crate) use self::collector::{CollectorGuard, collector};
pub(crate) use self::settings::rpcz_settings;
pub(crate) use self::span::{Event, Failure, Span, What};
pub(crate) use self::store::Search;
pub(crate) use self::tree::{Node, tree};

//! The servers of a registry, on one page.
//!
//! A [`poll`]er queries the state of each of them: a console by its page `/fleet/self`, which [`snapshot`] reads, and a
//! brpc server by its text pages, which [`brpc`] reads. [`summary`] merges the answers, and [`call_graph`] shows the
//! calls between servers.

mod histogram;
mod http;

mod snapshot;

mod brpc;

mod view;

mod poll;

mod summary;

mod call_graph;

pub(crate) use self::call_graph::{CallGraph, Edge, Node, call_graph};
pub(crate) use self::poll::Fleet;
pub(crate) use self::snapshot::{Kind, OwnEndpoint, OwnMethod, OwnSnapshot};
pub(crate) use self::summary::{MergedMethod, Summary, summary};
pub(crate) use self::view::ServerView;

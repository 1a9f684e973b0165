//! The servers of a registry, on one page.
//!
//! A [`poll`]er asks each of them for what it knows of itself: a console by its page `/fleet/self`, which [`look`] reads, and
//! one of brpc by its text pages, which [`brpc`] reads. [`summary`] puts them together, and
//! [`call_graph`] tells who calls whom.

mod histogram;
mod http;

mod look;

mod brpc;

mod view;

mod poll;

mod summary;

mod call_graph;

pub(crate) use self::call_graph::{CallGraph, Edge, Node, call_graph};
pub(crate) use self::look::{Kind, OwnCall, OwnLook, OwnMethod};
pub(crate) use self::poll::Fleet;
pub(crate) use self::summary::{MergedMethod, Summary, summary};
pub(crate) use self::view::ServerView;

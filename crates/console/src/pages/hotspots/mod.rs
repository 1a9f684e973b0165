//! `/hotspots`, `/pprof` and `/debug/pprof`: where the process spends its time, where it waits for locks, and where its
//! memory was allocated. The admin listener takes the profiles (`admin/profiles.rs`); this module parses its requests
//! and renders the results.

mod locks;

#[cfg(feature = "profile")]
mod graph;
#[cfg(feature = "profile")]
mod page;
#[cfg(feature = "profile")]
mod query;

use super::layout::failure;
use crate::console::State;
use crate::reply::Reply;
use crate::request::PageRequest;

#[cfg(feature = "profile")]
pub(crate) use self::page::answer_profile;
#[cfg(feature = "profile")]
pub(crate) use self::query::{Display, Source, kind as profile_kind, query as profile_query};

/// Answers requests for which no profile is taken: on other listeners than the admin listener, without the feature
/// `profile`, and of unknown paths.
pub(super) fn answer(_: &State, request: &PageRequest) -> Reply {
    let why = match (request.segment(0), request.segment(1)) {
        (Some("hotspots"), Some("contention")) => return locks::answer(request),
        (Some("hotspots" | "pprof"), Some("growth")) => {
            "There is no such profiler: compare two profiles of the heap, by /hotspots/heap?view=N&base=M."
        }
        _ if cfg!(feature = "profile") => {
            "Profiles are made on the admin listener, at /hotspots/cpu, /hotspots/contention and /hotspots/heap."
        }
        _ => "This program was built without the feature `profile` of polyrpc-console.",
    };
    failure(request, 404, why)
}

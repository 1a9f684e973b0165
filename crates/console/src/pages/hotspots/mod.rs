//! `/hotspots/cpu`: where the process spends its time. The admin listener makes profiles; this shows them.

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
pub(crate) use self::page::shown as shown_profile;
#[cfg(feature = "profile")]
pub(crate) use self::query::{Display, Source, query as profile_query};

/// Answers where no profile is made.
pub(super) fn answer(_: &State, request: &PageRequest) -> Reply {
    let why = match (request.segment(0), request.segment(1)) {
        (Some("hotspots"), Some("heap" | "growth" | "contention")) => {
            "There is no such profiler: only the CPU is profiled."
        }
        _ if cfg!(feature = "profile") => "Profiles are made on the admin listener, at /hotspots/cpu.",
        _ => "This program was built without the feature `profile` of polyrpc-console.",
    };
    failure(request, 404, why)
}

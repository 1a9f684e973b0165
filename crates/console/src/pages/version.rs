//! `/version`: the configured version of the server.

use crate::console::State;
use crate::reply::{Reply, TEXT};
use crate::request::PageRequest;

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let version = state
        .servers()
        .into_iter()
        .map(|server| server.monitor.version())
        .find(|version| !version.is_empty());
    let own = concat!("polyrpc/", env!("CARGO_PKG_VERSION"));
    let version = version.unwrap_or_else(|| own.to_owned());
    match request.parameter("format") {
        Some("json") => Reply::json("version", &version),
        _ => Reply::new(200, TEXT, version),
    }
}

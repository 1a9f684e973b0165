//! `/health`, `/readyz` and `/livez`, for load balancers and probes.

use crate::console::State;
use crate::reply::{Reply, TEXT};
use crate::request::PageRequest;

/// Answers whether calls are accepted, by all servers or for the service of the path or the query.
pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let service = match request.rest() {
        path if path.is_empty() => request.parameter("service").unwrap_or_default().to_owned(),
        path => path,
    };
    readiness(state, &service)
}

pub(super) fn answer_ready(state: &State, request: &PageRequest) -> Reply {
    readiness(state, request.parameter("service").unwrap_or_default())
}

/// The process answers.
pub(super) fn answer_live(_: &State, _: &PageRequest) -> Reply {
    Reply::new(200, TEXT, "OK")
}

fn readiness(state: &State, service: &str) -> Reply {
    match state.is_serving(service) {
        Some(true) => Reply::new(200, TEXT, "OK"),
        Some(false) => Reply::new(503, TEXT, "not serving\n"),
        None => Reply::new(404, TEXT, "no such service\n"),
    }
}

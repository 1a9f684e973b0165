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
    readiness(state, request, &service)
}

pub(super) fn answer_ready(state: &State, request: &PageRequest) -> Reply {
    readiness(state, request, request.parameter("service").unwrap_or_default())
}

/// The process answers.
pub(super) fn answer_live(_: &State, request: &PageRequest) -> Reply {
    render(request, "livez", 200, "OK")
}

fn readiness(state: &State, request: &PageRequest, service: &str) -> Reply {
    match state.is_serving(service) {
        Some(true) => render(request, "health", 200, "OK"),
        Some(false) => render(request, "health", 503, "not serving\n"),
        None => render(request, "health", 404, "no such service\n"),
    }
}

/// Probes want the text, whatever they accept; JSON is for those that ask for it.
fn render(request: &PageRequest, page: &'static str, status: u16, text: &'static str) -> Reply {
    match request.parameter("format") {
        Some("json") => Reply { status, ..Reply::json(page, &text.trim_end()) },
        _ => Reply::new(status, TEXT, text),
    }
}

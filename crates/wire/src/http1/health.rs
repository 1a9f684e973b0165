//! `GET /health`, for load balancers and probes: 200 while calls are taken, 503 while they are not.

use std::fmt;

use super::asked::Answer;
use super::request::Request;

/// Knows whether services take calls.
pub trait Health: fmt::Debug + Send + Sync {
    /// Whether this service takes calls; the empty name means the server as a whole. `None` if there is no such service.
    fn is_serving(&self, service: &str) -> Option<bool>;
}

const PATH: &str = "/health";

/// The answer to a request for `/health`, `/health/Service` or `/health?service=Service`; `None` for any other path.
pub(super) fn answer(health: Option<&dyn Health>, request: &Request) -> Option<Answer> {
    let named = request.path.as_str().strip_prefix(PATH)?;
    let service = match (named.strip_prefix('/'), health) {
        (Some(service), Some(_)) => service,
        (None, _) if named.is_empty() => service_asked(request.query.as_str()),
        _ => return None,
    };
    Some(match health.map_or(Some(true), |health| health.is_serving(service)) {
        Some(true) => Answer::Text(200, "OK"),
        Some(false) => Answer::Text(503, "not serving\n"),
        None => Answer::Text(404, "no such service\n"),
    })
}

/// The service that the query names; else the empty name.
fn service_asked(query: &str) -> &str {
    query.split('&').find_map(|pair| pair.strip_prefix("service=")).unwrap_or_default()
}

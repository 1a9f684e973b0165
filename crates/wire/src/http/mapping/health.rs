//! Health checks of load balancers and probes: `GET /health` and `GET /readyz` answer 200 while calls are accepted, 503
//! while they are not; `GET /livez` answers 200 as long as the server runs.

use super::answer::Answer;
use super::config::{Health, ServerConfig};
use super::request::Request;

const PATH: &str = "/health";
const READY: &str = "/readyz";
const LIVE: &str = "/livez";

/// Returns the response to a request for `/health`, `/health/Service`, `/health?service=Service`, `/readyz`,
/// `/readyz?service=Service` or `/livez`; `None` for any other path.
pub(super) fn answer(config: &ServerConfig, request: &Request) -> Option<Answer> {
    let path = request.path.as_str();
    match path {
        LIVE => return config.probes.live.then_some(OK),
        READY => return config.probes.ready.then(|| readiness(config, requested_service(request))),
        _ => {}
    }
    let named = path.strip_prefix(PATH)?;
    let knows_services = config.health.as_deref().is_some_and(Health::knows_services);
    match named.strip_prefix('/') {
        Some(service) if knows_services => Some(readiness(config, service)),
        None if named.is_empty() => Some(readiness(config, requested_service(request))),
        _ => None,
    }
}

fn readiness(config: &ServerConfig, service: &str) -> Answer {
    let (http, text) = match config.health.as_ref().map_or(Some(true), |health| health.is_serving(service)) {
        Some(true) => (200, "OK"),
        Some(false) => (503, "not serving\n"),
        None => (404, "no such service\n"),
    };
    // The health of the server as a whole needs no credential; that of a named service does.
    if service.is_empty() { Answer::Text(http, text) } else { Answer::Service(http, text) }
}

const OK: Answer = Answer::Text(200, "OK");

/// Returns the service named by the query; else the empty name.
fn requested_service(request: &Request) -> &str {
    let mut pairs = request.query.as_str().split('&');
    pairs.find_map(|pair| pair.strip_prefix("service=")).unwrap_or_default()
}

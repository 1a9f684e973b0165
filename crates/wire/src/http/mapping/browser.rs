//! What a page in a browser may make a server do, without its user's knowledge.
//!
//! A browser sends some requests of any page to any server, and only keeps the answers from the page: a POST of plain
//! text or of a form, a GET. Such requests call no method unless [`Cors`](crate::http::Cors) allows the page's
//! origin. A page whose name was made to resolve to this server (DNS rebinding) counts as the server's own, and is told
//! by the name in `Host`.

use super::answer::Answer;
use super::config::ServerConfig;
use super::request::{Method, Request};
use crate::http::Cors;
use crate::http::cors::is_own;

/// The answer to a request that calls a method, or shows what could be called, if its sender must not do so.
pub(crate) fn refusal(config: &ServerConfig, request: &Request) -> Option<Answer> {
    if request.from_page && !config.lenient && is_foreign(&config.cors, request) {
        return Some(Answer::Failed(403, "pages of this origin may not call\n"));
    }
    wrong_host(config, request)
}

/// The answer to a request that calls the server by a name which is not its own, as far as that is known.
pub(crate) fn wrong_host(config: &ServerConfig, request: &Request) -> Option<Answer> {
    let hosts = &config.hosts;
    let strict = !hosts.names.is_empty();
    // All else is sent with an `Origin`, of which pages cannot spare the server. A client of HTTP/1.0 may be without
    // a Host, a browser is not.
    let may_be_rebound = request.from_page || matches!(request.method, Method::Get | Method::Head);
    let checked = strict || hosts.loopback && !config.lenient && may_be_rebound && !request.host.is_empty();
    if checked && !hosts.take(&request.host) {
        return Some(Answer::Failed(421, "this server is not called by the name in Host\n"));
    }
    None
}

/// Whether a page of another origin sends a request, and is not allowed to.
#[cold]
fn is_foreign(cors: &Cors, request: &Request) -> bool {
    match request.metadata.bytes("origin") {
        Some(origin) => !is_own(origin, &request.host) && cors.origin(&request.metadata).is_none(),
        // A GET tells no origin: that of a link, an image, a script.
        None => {
            let site = request.metadata.get("sec-fetch-site");
            matches!(site, Some("cross-site" | "same-site")) && *cors != Cors::Any
        }
    }
}

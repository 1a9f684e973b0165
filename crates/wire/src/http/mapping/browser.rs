//! Protection against requests that a web page makes a browser send without its user's knowledge.
//!
//! A browser sends some requests of any page to any server, and only hides the responses from the page: a POST of plain
//! text or of a form, a GET. Such requests call no method unless [`Cors`](crate::http::Cors) allows the page's origin.
//! A page whose name was made to resolve to this server (DNS rebinding) counts as same-origin, and is recognised by the
//! name in `Host`.

use super::answer::Answer;
use super::config::ServerConfig;
use super::request::{Method, Request};
use crate::http::Cors;
use crate::http::cors::is_own;

/// Returns the response to a request that calls a method, or reveals which methods exist, if its sender is not allowed
/// to.
pub(crate) fn refusal(config: &ServerConfig, request: &Request) -> Option<Answer> {
    if request.from_page && !config.lenient && is_foreign(&config.cors, request) {
        return Some(Answer::Failed(403, "pages of this origin may not call\n"));
    }
    wrong_host(config, request)
}

/// Returns the response to a request whose `Host` is not a name of the server, if the names are known.
pub(crate) fn wrong_host(config: &ServerConfig, request: &Request) -> Option<Answer> {
    let hosts = &config.hosts;
    let strict = !hosts.names.is_empty();
    // Browsers send all other requests with an `Origin`, which pages cannot omit. An HTTP/1.0 client may send no Host,
    // a browser always does.
    let may_be_rebound = request.from_page || matches!(request.method, Method::Get | Method::Head);
    let checked = strict || hosts.loopback && !config.lenient && may_be_rebound && !request.host.is_empty();
    if checked && !hosts.take(&request.host) {
        return Some(Answer::Failed(421, "the Host is not a name of this server\n"));
    }
    None
}

/// Whether a request comes from a page of another origin that is not allowed.
#[cold]
fn is_foreign(cors: &Cors, request: &Request) -> bool {
    match request.metadata.bytes("origin") {
        Some(origin) => !is_own(origin, &request.host) && cors.origin(&request.metadata).is_none(),
        // A GET has no origin if it comes from a link, an image or a script.
        None => {
            let site = request.metadata.get("sec-fetch-site");
            matches!(site, Some("cross-site" | "same-site")) && *cors != Cors::Any
        }
    }
}

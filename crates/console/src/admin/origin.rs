//! Rejects requests that a web page of another origin made a browser send.
//!
//! For a browser, a page whose own name was made to resolve to this listener (DNS rebinding) has the listener's origin;
//! it is recognised by the name in `Host`.

use std::net::IpAddr;

use polyrpc::fallback::HttpRequest;

use super::access::Access;
use crate::reply::{Reply, TEXT};

/// Returns the answer to a request that is refused.
pub(super) fn refusal(request: &HttpRequest, access: &Access) -> Option<Reply> {
    if access.tls && !request.is_tls {
        return Some(Reply::new(403, TEXT, "this listener speaks TLS\n"));
    }
    if request.context.peer().address().is_some() && !is_own_host(&request.authority, &access.hosts) {
        return Some(Reply::new(421, TEXT, "this listener is not called by the name in Host\n"));
    }
    let field = |name| request.headers.get(name);
    let own = format!("{}://{}", if request.is_tls { "https" } else { "http" }, request.authority);
    let is_foreign = match (field("origin"), field("sec-fetch-site")) {
        (Some(origin), _) => !origin.eq_ignore_ascii_case(&own),
        (None, Some("same-origin" | "none")) => false,
        // A link on another page may lead here unless it starts work; another page may load nothing else from here.
        (None, Some(_)) => {
            let is_link = request.method == "GET" && field("sec-fetch-mode") == Some("navigate");
            !is_link || starts_work(&request.target)
        }
        (None, None) => request.headers.bytes("origin").is_some(),
    };
    is_foreign.then(|| Reply::new(403, TEXT, "requests of pages of other origins are refused\n"))
}

/// Whether a request for a target starts work that takes seconds.
fn starts_work(target: &str) -> bool {
    let name = target.split(['/', '?']).find(|segment| !segment.is_empty()).unwrap_or_default();
    let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
    ["hotspots", "pprof", "debug", "tap"].contains(&&*name)
}

/// Whether a `Host` is an IP address, `localhost`, one of these names, or missing, which it never is in a browser's
/// request.
fn is_own_host(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let listed =
        names.iter().any(|known| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host));
    host.is_empty() || listed || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_own_host;

    #[test]
    fn names_that_a_name_server_could_have_made_up_are_not_own() {
        let names = ["admin.example".to_owned()];
        for host in ["", "127.0.0.1:80", "[::1]:80", "[::1]", "10.1.2.3", "LOCALHOST:1", "Admin.Example:8001"]
        {
            assert!(is_own_host(host, &names), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[evil]:1", "[::1", "a"]
        {
            assert!(!is_own_host(host, &names), "{host}");
        }
    }
}

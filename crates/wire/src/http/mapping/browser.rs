//! What a page in a browser may make a server do, without its user's knowledge.
//!
//! A browser sends some requests of any page to any server, and only keeps the answers from the page: a POST of plain
//! text or of a form, a GET. Such requests call no method unless [`Cors`](crate::http::Cors) allows the page's
//! origin. A page whose name was made to resolve to this server (DNS rebinding) counts as the server's own, and is told
//! by the name in `Host`.

use super::asked::Answer;
use super::config::ServerConfig;
use super::request::{Method, Request};
use crate::http::Cors;
use crate::http::cors::is_own;

/// Under which names a server is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    /// What `Host` may name, with or without a port; IP addresses and `localhost` always may. Empty: anything.
    pub names: Vec<String>,
    /// The listener is reached from its own machine only. What a browser may have sent must name an IP address,
    /// `localhost` or one of [`names`](Self::names) then.
    pub loopback: bool,
}

impl Hosts {
    /// Whether `Host` may be this.
    fn take(&self, host: &[u8]) -> bool {
        let name = name_of(host);
        let listed = |known: &String| {
            known.as_bytes().eq_ignore_ascii_case(host) || known.as_bytes().eq_ignore_ascii_case(name)
        };
        is_address(name) || is_localhost(name) || self.names.iter().any(listed)
    }
}

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

/// A `Host` without its port.
fn name_of(host: &[u8]) -> &[u8] {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|byte| *byte == b']').map(|at| at + 1),
        _ => host.iter().position(|byte| *byte == b':'),
    };
    end.and_then(|end| host.get(..end)).unwrap_or(host)
}

fn is_address(name: &[u8]) -> bool {
    let bare = name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")).unwrap_or(name);
    std::str::from_utf8(bare).is_ok_and(|text| text.parse::<std::net::IpAddr>().is_ok())
}

fn is_localhost(name: &[u8]) -> bool {
    const LOCAL: &[u8] = b"localhost";
    let name = name.strip_suffix(b".").unwrap_or(name);
    let Some((rest, end)) = name.split_at_checked(name.len().wrapping_sub(LOCAL.len())) else { return false };
    end.eq_ignore_ascii_case(LOCAL) && matches!(rest.last(), None | Some(b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_taken_if_no_name_server_could_have_made_it_up() {
        let hosts = Hosts { names: vec!["api.example".into(), "b.example:8080".into()], loopback: true };
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]:80",
            "[::1]",
            "localhost:1",
            "LOCALHOST",
            "a.localhost",
            "localhost.",
            "API.example:9",
            "b.example:8080",
        ] {
            assert!(hosts.take(host.as_bytes()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil",
            "xlocalhost",
            "b.example",
            "b.example:1",
            "api.example.evil",
            "host",
        ] {
            assert!(!hosts.take(host.as_bytes()), "{host}");
        }
    }
}

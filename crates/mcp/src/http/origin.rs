//! Rejects requests that a web page made a browser send, unless the page is allowed.
//!
//! A page whose own name was made to resolve to this listener (DNS rebinding) looks like a page of this listener.
//! Therefore a name in `Host` is not trusted, only an address or `localhost`, which cannot be rebound.

use std::net::IpAddr;

use polyrpc::Metadata;
use polyrpc::fallback::HttpRequest;

/// The web page that a request comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// No page, or a page of the server itself.
    Own,
    /// An allowed page.
    Allowed(String),
}

impl Origin {
    pub(super) fn check(request: &HttpRequest, allowed: &[String]) -> Result<Self, &'static str> {
        let scheme = if request.is_tls { "https" } else { "http" };
        let field = |name| request.headers.get(name);
        match (field("origin"), field("sec-fetch-site")) {
            (Some(origin), _) => {
                if allowed.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
                    return Ok(Self::Allowed(origin.to_owned()));
                }
                let own = format!("{scheme}://{}", request.authority);
                match origin.eq_ignore_ascii_case(&own) && is_address(&request.authority) {
                    true => Ok(Self::Own),
                    false => Err("web pages of this origin may not call"),
                }
            }
            (None, None | Some("same-origin" | "none")) if request.headers.bytes("origin").is_none() => {
                Ok(Self::Own)
            }
            (None, _) => Err("web pages of other origins may not call"),
        }
    }

    /// Adds the fields that let the page read the answer.
    pub(super) fn allow(&self, fields: &mut Metadata) {
        if let Self::Allowed(origin) = self {
            fields.append("access-control-allow-origin", origin.clone());
            fields.append("vary", "origin");
            fields.append("access-control-allow-methods", "POST");
            let names = "authorization, content-type, mcp-method, mcp-name, mcp-protocol-version";
            fields.append("access-control-allow-headers", names);
        }
    }
}

/// Whether a `Host` is an IP address or `localhost`.
fn is_address(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn names_that_could_resolve_to_any_host_are_not_addresses() {
        for host in ["127.0.0.1:80", "[::1]:80", "[::1]", "10.1.2.3", "LOCALHOST:1"] {
            assert!(is_address(host), "{host}");
        }
        for host in
            ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[evil]:1", "[::1"]
        {
            assert!(!is_address(host), "{host}");
        }
    }
}

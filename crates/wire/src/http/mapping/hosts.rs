//! Host names of a server.

/// Host names under which a server accepts requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Names allowed in `Host`, with or without a port; IP addresses and `localhost` are always allowed. Empty: any.
    pub names: Vec<String>,
    /// The listener is reachable from the local machine only. Requests that a browser may have sent must then name an
    /// IP address, `localhost` or one of [`names`](Self::names).
    pub loopback: bool,
}

impl Hosts {
    /// Whether this `Host` is allowed.
    pub(super) fn take(&self, host: &[u8]) -> bool {
        let name = name_of(host);
        let listed = |known: &String| {
            known.as_bytes().eq_ignore_ascii_case(host) || known.as_bytes().eq_ignore_ascii_case(name)
        };
        is_address(name) || is_localhost(name) || self.names.iter().any(listed)
    }
}

/// Returns a `Host` without its port.
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
    fn host_is_accepted_if_dns_rebinding_cannot_forge_it() {
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

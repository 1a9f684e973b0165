use polyrpc::Status;
use polyrpc::discovery::redacted;

/// Server, as given by its URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// `host:port`.
    pub(crate) authority: String,
    /// Host, without the brackets of IPv6.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// Whether it uses TLS.
    pub(crate) tls: bool,
    /// Prefix of each path: empty, or `/proxy`.
    pub(crate) prefix: String,
}

impl Origin {
    /// Parses comma-separated URLs.
    pub(super) fn parse_list(urls: &str, port: u16) -> Result<Vec<Self>, Status> {
        let mut tls = false;
        urls.split(',')
            .map(|url| {
                // The scheme of the first applies to all: `https://a:1,b:2`.
                let origin = Self::parse(url, port, tls)?;
                tls = origin.tls;
                Ok(origin)
            })
            .collect()
    }

    fn parse(url: &str, port: u16, tls: bool) -> Result<Self, Status> {
        let wrong = |why: &str| {
            Status::invalid_argument(format!("`{}` is not a registry address: {why}", redacted(url)))
        };
        let (tls, rest) = match url.split_once("://") {
            None => (tls, url),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => return Err(wrong("expected http:// or https://")),
        };
        if tls && !cfg!(feature = "tls") {
            return Err(wrong("TLS is not built in (feature `tls`)"));
        }
        let (authority, prefix) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = host_and_port(authority, port).ok_or_else(|| wrong("expected host:port"))?;
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Ok(Self {
            authority: format!("{bracketed}:{port}"),
            host: host.to_owned(),
            port,
            tls,
            prefix: prefix.trim_end_matches('/').to_owned(),
        })
    }
}

fn host_and_port(authority: &str, usual: u16) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']')?;
            (host, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => usual,
        // Rust's own conversion accepts it.
        Some(port) if port.starts_with('+') => return None,
        Some(port) => port.parse().ok()?,
    };
    let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
    (is_host && port != 0).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_all(urls: &str) -> Vec<String> {
        let origins = Origin::parse_list(urls, 8500).unwrap();
        origins.iter().map(|origin| format!("{}{}", origin.authority, origin.prefix)).collect()
    }

    #[test]
    fn scheme_and_port_of_an_address_are_optional() {
        assert_eq!(parse_all("h"), ["h:8500"]);
        assert_eq!(parse_all("http://h:1/proxy/"), ["h:1/proxy"]);
        assert_eq!(parse_all("[::1]:2,[::1],c"), ["[::1]:2", "[::1]:8500", "c:8500"]);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn https_applies_to_all_following_addresses() {
        let origins = Origin::parse_list("https://a:1,b:2,http://c:3", 1).unwrap();
        assert_eq!(origins.iter().map(|origin| origin.tls).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn invalid_address_is_rejected() {
        for wrong in [
            "", ":1", "h:0", "h:x", "h:+1", "[::1]:+1", "h:70000", "ftp://h", "[::1", "[::1]x", "a,,b",
            "u@h:1", "h h:1",
        ] {
            assert!(Origin::parse_list(wrong, 8500).is_err(), "{wrong}");
        }
    }
}

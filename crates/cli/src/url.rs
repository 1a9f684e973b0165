//! Parses and formats URLs of the command line: the same server over another protocol, or a URL to paste.

use std::fmt::{self, Write};
use std::path::{self, Path};

use polyrpc::{Address, Protocol};
use polyrpc_core::protocol::Parameter;

/// A URL `protocol[+tls][+registry]://address[?parameters]`. The client checks what the parts mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// Without the `s` of `grpcs` and `https`.
    pub(crate) protocol: String,
    pub(crate) tls: bool,
    pub(crate) registry: Option<String>,
    /// Host and port, and possibly a path; the path of a Unix socket; or text for the registry.
    pub(crate) address: String,
    /// As written: percent-encoded.
    pub(crate) parameters: Vec<(String, String)>,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let scheme = scheme.to_ascii_lowercase();
        let mut words = scheme.split('+');
        let (protocol, secure) = match words.next()? {
            "grpcs" => ("grpc", true),
            "https" => ("http", true),
            name => (name, false),
        };
        let mut url = Self { tls: secure, ..Self::new(protocol, address, query) };
        for word in words {
            match word {
                "tls" => url.tls = true,
                word => url.registry = Some(word.to_owned()),
            }
        }
        Some(url)
    }

    /// Creates a URL without TLS.
    pub(crate) fn new(protocol: &str, address: &str, query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let parameters = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self {
            protocol: protocol.to_owned(),
            tls: false,
            registry: None,
            address: address.to_owned(),
            parameters: parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        }
    }

    /// Creates the URL of a server from `scheme?parameters` and its address.
    pub(crate) fn from_server(scheme: &str, address: &Address) -> Self {
        let (protocol, query) = scheme.split_once('?').unwrap_or((scheme, ""));
        let (text, transport) = match address {
            Address::Unix(path) => (encode_socket_path(path), None),
            Address::Kcp(authority) => (authority.clone(), Some("kcp")),
            Address::Quic(authority) => (authority.clone(), Some("quic")),
            address => (address.to_string(), None),
        };
        let mut url = Self::new(protocol, &text, query);
        url.parameters.extend(transport.map(|name| ("transport".to_owned(), name.to_owned())));
        url
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Path of the Unix socket, percent-encoded; `None` for other addresses.
    pub(crate) fn socket(&self) -> Option<&str> {
        (self.registry.is_none() && self.address.starts_with('/')).then_some(&*self.address)
    }

    /// Host and port without a path, or the path of a socket.
    pub(crate) fn server(&self) -> &str {
        self.socket().unwrap_or_else(|| self.address.split('/').next().unwrap_or_default())
    }

    /// Quotes the URL for a shell if necessary.
    pub(crate) fn quote(&self) -> String {
        let text = self.to_string();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%[]".contains(c);
        if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
    }
}

/// Writes `grpcs` and `https` for `grpc+tls` and `http+tls`.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.protocol)?;
        match (self.tls, &*self.protocol) {
            (true, "grpc" | "http") => f.write_str("s")?,
            (true, _) => f.write_str("+tls")?,
            (false, _) => {}
        }
        if let Some(registry) = &self.registry {
            write!(f, "+{registry}")?;
        }
        write!(f, "://{}", self.address)?;
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            write!(f, "{}{name}", if index == 0 { '?' } else { '&' })?;
            if !value.is_empty() {
                write!(f, "={value}")?;
            }
        }
        Ok(())
    }
}

/// Percent-encodes the path of a socket. Makes it absolute: without a leading slash it would be a host.
fn encode_socket_path(path: &Path) -> String {
    let path = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.display().to_string().replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}

/// Help text about the URL parameters of all protocols.
pub(crate) fn parameters_help() -> String {
    let mut text = String::from(
        "URLs are protocol[+tls][+registry]://address[?parameters]. Quote URLs with parameters: ? and & are special characters of a shell.\n",
    );
    let mut known: Vec<(Parameter, Vec<&str>)> = Vec::new();
    for protocol in Protocol::ALL {
        let descriptor = protocol.descriptor();
        for parameter in polyrpc::client::url_parameters(descriptor) {
            let schemes = descriptor.schemes.iter().map(|scheme| scheme.name);
            let schemes = schemes.filter(|scheme| parameter.belongs_to(scheme));
            match known.iter_mut().find(|(other, _)| *other == parameter) {
                Some((_, all)) => all.extend(schemes),
                None => {
                    // Parameters of the same name follow each other.
                    let last = known.iter().rposition(|(other, _)| other.name == parameter.name);
                    let index = last.map_or(known.len(), |last| last + 1);
                    known.insert(index, (parameter, schemes.collect()));
                }
            }
        }
    }
    for (parameter, schemes) in known {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {parameter}\n        of {}: {}", schemes.join(", "), parameter.summary);
    }
    text
}

/// A protocol by its name, for options.
pub(crate) fn parse_protocol(name: &str) -> Result<Protocol, String> {
    let wanted = name.replace('-', "_");
    Protocol::ALL.into_iter().find(|protocol| protocol.as_str() == wanted).ok_or_else(|| {
        let known = Protocol::ALL.map(Protocol::as_str).join(", ");
        format!("there is no protocol `{name}`; there are {known}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_round_trips_through_text() {
        for text in [
            "rpcx://h:1",
            "grpcs://h:1",
            "https://h/",
            "rpcx+tls://[::1]:1?transport=ws",
            "rpcx:///run/x%3F",
            "rest-rpc://h:1?version=0.21&byte_order=big",
            "rpcx+etcd://me:secret@h:1,h:2/base/S",
            "baidu-std+tls+consul://h:1/S?tls&token=a%20b&transport=kcp",
            "rpcx+list://a:1 weight=5&group=a,b:2?transport=ws",
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Url::parse("grpc+tls://h:1").unwrap().to_string(), "grpcs://h:1");
        assert_eq!(Url::parse("HTTPS://H/").unwrap().to_string(), "https://H/");
        assert_eq!(Url::parse("h:1"), None);
    }

    #[test]
    fn server_url_names_its_transport() {
        for (scheme, address, url) in [
            ("rpcx", "127.0.0.1:1", "rpcx://127.0.0.1:1"),
            ("http?dialect=json-rpc", "127.0.0.1:1", "http://127.0.0.1:1?dialect=json-rpc"),
            ("http?dialect=json-rpc", "kcp://h:1", "http://h:1?dialect=json-rpc&transport=kcp"),
            ("grpc", "quic://h:1", "grpc://h:1?transport=quic"),
            ("rpcx", "unix:/run/a%b?c", "rpcx:///run/a%25b%3Fc"),
        ] {
            let url_of_server = Url::from_server(scheme, &address.parse().unwrap()).to_string();
            assert_eq!(url_of_server, url);
            if !address.starts_with("quic") {
                assert!(polyrpc::Client::new(&url_of_server).is_ok(), "{url}");
            }
        }
        let relative = Url::from_server("rpcx", &Address::Unix("x.sock".into()));
        assert!(relative.socket().is_some_and(|path| path.ends_with("/x.sock")), "{relative}");
    }

    #[test]
    fn url_with_parameters_is_quoted_for_the_shell() {
        assert_eq!(Url::new("rpcx", "[::1]:1", "").quote(), "rpcx://[::1]:1");
        assert_eq!(Url::new("rpcx", "h:1", "a=1&b=2").quote(), "'rpcx://h:1?a=1&b=2'");
    }

    #[test]
    fn help_lists_the_declared_parameters() {
        let text = parameters_help();
        for part in [
            "  transport=tcp|unix|ws|kcp|quic\n        of baidu-std, fb-rpc, grpc, ",
            "  transport=tcp|unix|ws|kcp|quic|http-connect\n        of rpcx, net-rpc: ",
            "  http_version=1.1|2\n        of grpc-web, connect: version of HTTP",
            "  codec=gob|json|msgpack|",
            "  byte_order=little|big\n        of rest-rpc: ",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}

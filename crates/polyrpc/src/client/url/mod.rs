//! URLs of clients: `protocol[+tls][+registry]://address[?parameters]`. [`Client::new`](super::Client::new) documents them.
//!
//! `scheme` parses the part before `://`, `parameters` the query.

mod parameters;

mod scheme;

#[cfg(test)]
mod tests;

use std::time::Duration;

use polyrpc_core::Status;
use polyrpc_core::protocol::{Dialect, Parameters, percent_decode};
use polyrpc_wire::{Protocol, rpcx};

use self::parameters::{Selection, Transport, check_path, split_query};
use self::scheme::Scheme;
use crate::discovery::{self, Attributes, Instance, Network};
use crate::transport::Address;

pub use self::parameters::url_parameters;

/// Parsed URL of a server, or of the servers that a registry lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) protocol: Protocol,
    pub(crate) address: Address,
    /// Whether connections use TLS. False over QUIC, which includes it.
    pub(crate) tls: bool,
    /// Dialect of the protocol: JSON-RPC over HTTP, a version of rest_rpc, a codec of net/rpc, …
    pub(crate) dialect: Dialect,
    /// Path of the WebSocket that carries the protocol.
    pub(crate) websocket: Option<String>,
    /// Path of the `CONNECT` with which a connection of net/rpc or rpcx starts.
    pub(crate) connect: Option<String>,
    /// Path of either, for instances whose registry selects the transport.
    pub(crate) http_path: Option<String>,
}

impl Url {
    /// Parses the URL of one server, with one of these protocols.
    pub(crate) fn parse(text: &str, known: &[Protocol]) -> Result<Self, Status> {
        let wrong = |why: String| invalid(text, &why);
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| wrong("expected protocol://host:port".to_owned()))?;
        let scheme = Scheme::parse(scheme, known).map_err(wrong)?;
        if let Some(word) = scheme.registry().map_err(wrong)? {
            return Err(discovery::how_to_add(word).unwrap_or_else(|| wrong(scheme.unknown_words())));
        }
        Self::parse_server(&scheme, rest).map_err(wrong)
    }

    /// Parses the URL of a service whose servers are discovered otherwise: the part after `://` is only a name.
    pub(crate) fn parse_service(text: &str, known: &[Protocol]) -> Result<Self, Status> {
        let wrong = |why: String| invalid(text, &why);
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let scheme = Scheme::parse(scheme, known).map_err(wrong)?;
        if scheme.registry().map_err(wrong)?.is_some() {
            return Err(wrong(scheme.unknown_words()));
        }
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        Self::parse_instances(&scheme, query).map_err(wrong)
    }

    fn parse_server(scheme: &Scheme, rest: &str) -> Result<Self, String> {
        if rest.contains('#') {
            return Err("a fragment (`#`) is not allowed here; in a path or a value write %23".to_owned());
        }
        let (without_query, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) =
            without_query.find('/').map_or((without_query, ""), |at| without_query.split_at(at));
        let selection = Selection::parse(query, scheme.protocol.descriptor(), scheme.name)?;
        let address = address(scheme, host, path, selection.transport)?;
        let path = Some(path).filter(|path| address.host_and_port().is_some() && !matches!(*path, "" | "/"));
        let starts_with_http = selection.transport.is_some_and(Transport::starts_with_http);
        let http_path = match (path, selection.http_path) {
            (Some(_), _) if !starts_with_http => {
                let why = "a path is not allowed here: the call names the method; only transport=ws and \
                           transport=http-connect use a path";
                return Err(why.to_owned());
            }
            (None, Some(_)) if !starts_with_http => {
                return Err("`http_path` needs transport=ws or transport=http-connect".to_owned());
            }
            (Some(_), Some(_)) => {
                return Err("the path is given twice: after the host and as `http_path`".to_owned());
            }
            (Some(path), None) => {
                check_path(path)?;
                Some(path.to_owned())
            }
            (None, http_path) => http_path,
        };
        Ok(Self::new(scheme, address, Selection { http_path, ..selection }).with_network_transport())
    }

    /// Creates the URL of servers that a registry lists.
    fn parse_instances(scheme: &Scheme, query: &str) -> Result<Self, String> {
        let selection = Selection::parse(query, scheme.protocol.descriptor(), scheme.name)?;
        let address = match selection.transport {
            None | Some(Transport::Tcp | Transport::Ws | Transport::HttpConnect) => Address::Tcp,
            Some(Transport::Kcp) => Address::Kcp,
            Some(Transport::Quic) => Address::Quic,
            Some(Transport::Unix) => {
                let why = "`transport=unix` is not allowed with a registry: the registry lists sockets \
                           itself, as unix@/run/app.sock";
                return Err(why.to_owned());
            }
        };
        Ok(Self::new(scheme, address(String::new()), selection))
    }

    fn new(scheme: &Scheme, address: Address, selection: Selection) -> Self {
        let Selection { transport, http_path, dialect } = selection;
        let path = |of, default: &str| {
            (transport == Some(of)).then(|| http_path.clone().unwrap_or_else(|| default.to_owned()))
        };
        let connect = scheme.protocol.descriptor().connect;
        Self {
            protocol: scheme.protocol,
            address,
            tls: scheme.tls,
            dialect,
            websocket: path(Transport::Ws, WEBSOCKET),
            connect: connect.and_then(|connect| path(Transport::HttpConnect, connect.path)),
            http_path,
        }
    }

    /// QUIC includes TLS, so a second layer of TLS is not needed.
    fn with_network_transport(mut self) -> Self {
        self.tls &= !matches!(self.address, Address::Quic(_));
        self
    }

    /// Returns the pause after connecting before the first call is sent.
    pub(crate) fn settle_time(&self) -> Option<Duration> {
        match &self.websocket {
            None => self.dialect.settling,
            Some(_) => None,
        }
    }

    /// Returns the same URL for this server. An instance with network TCP is reached by the URL's transport, any other
    /// by its own network.
    pub(crate) fn at(&self, instance: &Instance) -> Result<Self, Status> {
        // The only server of a client keeps the transport of its URL.
        if *instance == self.instance() {
            return Ok(self.clone());
        }
        // Not every instance was parsed from text.
        instance.to_string().parse::<Instance>()?;
        let instance_address = instance.address.clone();
        let address = match (instance.network, &self.address) {
            (Network::Unix, _) => Address::Unix(instance_address.into()),
            (Network::Kcp, _) | (Network::Tcp, Address::Kcp(_)) => Address::Kcp(instance_address),
            (Network::Quic, _) | (Network::Tcp, Address::Quic(_)) => Address::Quic(instance_address),
            (Network::Tcp | Network::Http | Network::Ws | Network::Wss, _) => Address::Tcp(instance_address),
        };
        let mut url = match instance.network {
            Network::Tcp => Self { address, ..self.clone() },
            _ => Self { address, websocket: None, connect: None, ..self.clone() },
        };
        let path = |default: &str| self.http_path.clone().unwrap_or_else(|| default.to_owned());
        match instance.network {
            Network::Tcp | Network::Unix | Network::Kcp | Network::Quic => {}
            Network::Ws | Network::Wss => {
                url.tls |= instance.network == Network::Wss;
                url.websocket = Some(path(WEBSOCKET));
            }
            Network::Http => match self.protocol.descriptor().connect {
                Some(connect) => url.connect = Some(path(connect.path)),
                None if self.protocol == Protocol::Http => {}
                None => {
                    let other = self.protocol.as_str();
                    return Err(Status::unimplemented(format!(
                        "{other} is not spoken behind HTTP's CONNECT"
                    )));
                }
            },
        }
        Ok(url.with_network_transport())
    }

    /// Returns the path of the `CONNECT` that is sent before the session is created.
    pub(crate) fn connect_before_session(&self) -> Option<&str> {
        let by_session = self.protocol.descriptor().connect.is_some_and(|connect| connect.by_session);
        self.connect.as_deref().filter(|_| !by_session)
    }

    /// Returns the server of this URL, as a registry would list it.
    pub(crate) fn instance(&self) -> Instance {
        let (network, address) = match &self.address {
            Address::Tcp(authority) => (Network::Tcp, authority.clone()),
            Address::Unix(path) => (Network::Unix, path.display().to_string()),
            Address::Kcp(authority) => (Network::Kcp, authority.clone()),
            Address::Quic(authority) => (Network::Quic, authority.clone()),
        };
        Instance { network, address, attributes: Attributes::new() }
    }

    /// Creates the URL of a server in this process.
    pub(crate) fn in_process(protocol: Protocol, query: &str) -> Result<Self, Status> {
        let descriptor = protocol.descriptor();
        let scheme = descriptor.schemes.first().map_or(descriptor.name, |scheme| scheme.name);
        let dialect = Parameters::parse(query, scheme, descriptor.parameters)
            .and_then(|parameters| descriptor.select_dialect(scheme, parameters))
            .map_err(Status::invalid_argument)?;
        Ok(Self { dialect, ..Self::without_server(protocol) })
    }

    /// Creates a URL without a server, with the default dialect of the protocol.
    pub(crate) fn without_server(protocol: Protocol) -> Self {
        Self {
            protocol,
            address: Address::Unix("in-process".into()),
            tls: false,
            dialect: Dialect::new(protocol.as_str()),
            websocket: None,
            connect: None,
            http_path: None,
        }
    }

    /// Returns the protocol for ALPN: a WebSocket starts with HTTP/1.1, whatever it carries, and so do gRPC-Web and
    /// Connect.
    pub(crate) fn begins_with(&self) -> Protocol {
        match self.websocket.is_some() || self.dialect.within_http1 {
            true => Protocol::Http,
            false => self.protocol,
        }
    }

    /// Returns the server's name for HTTP. A Unix socket is `localhost`.
    pub(crate) fn authority(&self) -> String {
        self.address.host_and_port().unwrap_or("localhost").to_owned()
    }

    /// Returns the host that a certificate must be valid for. A Unix socket is `localhost`.
    pub(crate) fn host(&self) -> &str {
        let authority = self.address.host_and_port().unwrap_or("localhost");
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }
}

/// URL of a client that discovers its servers, such as `rpcx+etcd://a:1/base`: parsed, with a word that may name a
/// registry.
#[derive(Debug)]
pub(crate) struct DiscoveryUrl<'a> {
    text: &'a str,
    scheme: Scheme,
    /// Word that may name a registry.
    pub(crate) registry: String,
    /// Part after `://` without the parameters of transport and protocol.
    pub(crate) rest: String,
    /// Parameters of transport and protocol.
    query: String,
}

impl<'a> DiscoveryUrl<'a> {
    /// Parses a URL; returns `None` if its scheme has no further word.
    pub(crate) fn parse(text: &'a str, known: &[Protocol]) -> Result<Option<Self>, Status> {
        let wrong = |why: String| invalid(text, &why);
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(None) };
        let scheme = Scheme::parse(scheme, known).map_err(wrong)?;
        let Some(registry) = scheme.registry().map_err(wrong)?.map(str::to_owned) else { return Ok(None) };
        let (without_query, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (query, others) = split_query(query, scheme.protocol.descriptor());
        let rest =
            if others.is_empty() { without_query.to_owned() } else { format!("{without_query}?{others}") };
        Ok(Some(Self { text, scheme, registry, rest, query }))
    }

    /// Returns the URL settings for the servers that the registry lists.
    pub(crate) fn url(&self) -> Result<Url, Status> {
        Url::parse_instances(&self.scheme, &self.query).map_err(|why| invalid(self.text, &why))
    }
}

/// Returns the part of a client's URL that belongs to the registry: without protocol, and without parameters of protocol or
/// transport.
/// Other URLs are returned unchanged.
///
/// ```
/// use polyrpc::client::registry_url;
///
/// assert_eq!(registry_url("rpcx+tls+etcd://a:1/base?transport=kcp&user=me"), "etcd://a:1/base?user=me");
/// assert_eq!(registry_url("etcd://a:1/base?user=me"), "etcd://a:1/base?user=me");
/// ```
pub fn registry_url(url: &str) -> String {
    match DiscoveryUrl::parse(url, &Protocol::ALL) {
        Ok(Some(found)) => format!("{}://{}", found.registry, found.rest),
        Ok(None) | Err(_) => url.to_owned(),
    }
}

/// Returns the address of the server from the part after `://`.
fn address(scheme: &Scheme, host: &str, path: &str, transport: Option<Transport>) -> Result<Address, String> {
    let name = scheme.name;
    match (transport, host.is_empty() && path.len() > 1) {
        (Some(Transport::Unix), false) => Err(format!(
            "`transport=unix` needs the absolute path of a socket and no host: {name}:///run/app.sock"
        )),
        (Some(Transport::Tcp), true) => Err("`transport=tcp` needs host:port after ://".to_owned()),
        (Some(Transport::Kcp | Transport::Quic), true) => {
            Err("a Unix socket carries neither KCP nor QUIC".to_owned())
        }
        (_, true) => {
            let path = percent_decode(path).filter(|path| !path.contains('\0'));
            path.map(|path| Address::Unix(path.into()))
                .ok_or_else(|| "the socket path is not percent-encoded UTF-8: write `%` as %25".to_owned())
        }
        (transport, false) => {
            let authority = host_and_port(scheme, host)?;
            Ok(match transport {
                Some(Transport::Kcp) => Address::Kcp(authority),
                Some(Transport::Quic) => Address::Quic(authority),
                _ => Address::Tcp(authority),
            })
        }
    }
}

fn host_and_port(scheme: &Scheme, host: &str) -> Result<String, String> {
    if host.contains('@') {
        // It would be ignored, and would appear in every text that names the server.
        return Err("a user or password is not allowed here: set a credential".to_owned());
    }
    let has_port = host.contains(':') && !host.ends_with(']');
    match (host.parse(), scheme.protocol.descriptor().default_ports) {
        (Ok(Address::Tcp(authority)), _) => Ok(authority),
        (_, Some(ports)) if !host.is_empty() && !has_port => {
            Ok(format!("{host}:{}", if scheme.tls { ports.secure } else { ports.plain }))
        }
        _ => Err("expected host:port after ://".to_owned()),
    }
}

#[cold]
fn invalid(text: &str, why: &str) -> Status {
    Status::invalid_argument(format!("invalid URL `{}`: {why}", discovery::redacted(text)))
}

/// Default path of a WebSocket.
const WEBSOCKET: &str = rpcx::CONNECT_PATH;

use std::time::Duration;

use polyrpc_core::Status;
use polyrpc_core::protocol::Dialect;
use polyrpc_wire::{Protocol, rpcx};

use crate::discovery::{self, Attributes, Instance, Network};
use crate::transport::Address;

/// Parsed URL of a server: `baidu-std://127.0.0.1:8000`, `rpcx://host:8972`, `http://host`,
/// `rpcx+unix:///run/echo.sock`, `rpcx+ws://host:8972`, `http+json-rpc://host/`, `rest-rpc+v0.11://host:9000`,
/// `net-rpc+json://host:1234`, `net-rpc+http://host:1234`, `rpcx+http://host:8972`, `fb-rpc+two-dots://host:8000`; with
/// TLS `grpcs://host:443`, `https://host`, `rpcx+tls://host:8972`; gRPC-Web over HTTP/1.1 `grpc-web://host:8080`, over
/// HTTP/2 `grpc-web+h2://host:8080`; Connect over HTTP/1.1 `connect://host:8080`, over HTTP/2 `connect+h2://host:8080`,
/// with unary calls by GET `connect+get://host:8080`; over UDP `rpcx+kcp://host:8973`, `rpcx+quic://host:8974`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) protocol: Protocol,
    pub(crate) address: Address,
    pub(crate) tls: bool,
    /// Dialect of the protocol: JSON-RPC over HTTP, a generation of rest_rpc, a codec of net/rpc, …
    pub(crate) dialect: Dialect,
    /// Path of the WebSocket that carries the protocol.
    pub(crate) websocket: Option<String>,
    /// Path of the `CONNECT` with which a connection of net/rpc or rpcx starts.
    pub(crate) connect: Option<String>,
}

impl Url {
    /// Parses a URL of one of these protocols.
    pub(crate) fn parse(text: &str, known: &[Protocol]) -> Result<Self, Status> {
        let wrong = |why: &str| {
            Status::invalid_argument(format!("`{}` is no URL to call: {why}", discovery::redacted(text)))
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("want protocol://host:port"))?;
        let words = SchemeParts::parse(scheme, known).map_err(|why| wrong(&why))?;
        words.at(rest).map_err(|why| wrong(&why))
    }

    /// Parses protocol and variants only, the part before `://`, for servers that are discovered.
    pub(crate) fn from_scheme(scheme: &str, known: &[Protocol]) -> Result<Self, Status> {
        let words = SchemeParts::parse(scheme, known)
            .map_err(|why| Status::invalid_argument(format!("`{scheme}` is no protocol: {why}")))?;
        let nowhere = words.carrier.unwrap_or(Address::Tcp);
        Ok(Self {
            websocket: words.ws.then(|| WEBSOCKET.to_owned()),
            connect: words.connects.map(str::to_owned),
            ..words.to(nowhere(String::new()))
        })
    }

    /// Returns the pause after connecting before the first call is sent.
    pub(crate) fn settle_time(&self) -> Option<Duration> {
        match &self.websocket {
            None => self.dialect.settling,
            Some(_) => None,
        }
    }

    /// Returns the same URL for this server. An instance with network TCP is reached as the URL says.
    pub(crate) fn at(&self, instance: &Instance) -> Result<Self, Status> {
        // Not every instance was parsed from text.
        instance.to_string().parse::<Instance>()?;
        let place = instance.address.clone();
        let address = match (instance.network, &self.address) {
            (Network::Unix, _) => Address::Unix(place.into()),
            (Network::Kcp, _) | (Network::Tcp, Address::Kcp(_)) => Address::Kcp(place),
            (Network::Quic, _) | (Network::Tcp, Address::Quic(_)) => Address::Quic(place),
            (Network::Tcp | Network::Http | Network::Ws | Network::Wss, _) => Address::Tcp(place),
        };
        let mut url = Self { address, ..self.clone() };
        match instance.network {
            Network::Tcp | Network::Unix | Network::Kcp => {}
            // QUIC includes TLS.
            Network::Quic => url.tls = false,
            Network::Ws | Network::Wss => {
                url.tls |= instance.network == Network::Wss;
                url.websocket.get_or_insert_with(|| WEBSOCKET.to_owned());
            }
            Network::Http => match self.protocol.descriptor().connect {
                Some(connect) => {
                    url.connect.get_or_insert_with(|| connect.path.to_owned());
                }
                None if self.protocol == Protocol::Http => {}
                None => {
                    let other = self.protocol.as_str();
                    return Err(Status::unimplemented(format!(
                        "{other} is not spoken behind HTTP's CONNECT"
                    )));
                }
            },
        }
        Ok(url)
    }

    /// Returns the path of the `CONNECT` that is sent before the session is created.
    pub(crate) fn connect_before_session(&self) -> Option<&str> {
        let by_session = self.protocol.descriptor().connect.is_some_and(|connect| connect.by_session);
        self.connect.as_deref().filter(|_| !by_session)
    }

    /// Returns the server of this URL, as a registry would list it.
    pub(crate) fn instance(&self) -> Instance {
        let (network, address) = match &self.address {
            Address::Tcp(place) => (Network::Tcp, place.clone()),
            Address::Unix(path) => (Network::Unix, path.display().to_string()),
            Address::Kcp(place) => (Network::Kcp, place.clone()),
            Address::Quic(place) => (Network::Quic, place.clone()),
        };
        Instance { network, address, attributes: Attributes::new() }
    }

    /// Creates the URL of a server in this process.
    pub(crate) fn in_process(protocol: Protocol, words: &[&str]) -> Result<Self, Status> {
        let descriptor = protocol.descriptor();
        let scheme = descriptor.schemes.first().map_or(descriptor.name, |scheme| scheme.name);
        let dialect = (descriptor.dialect)(scheme, words).map_err(Status::invalid_argument)?;
        Ok(Self { dialect, ..Self::nowhere(protocol) })
    }

    /// Creates a URL without a server, with the default dialect of the protocol.
    pub(crate) fn nowhere(protocol: Protocol) -> Self {
        Self {
            protocol,
            address: Address::Unix("in-process".into()),
            tls: false,
            dialect: Dialect::new(protocol.as_str()),
            websocket: None,
            connect: None,
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
        let place = self.address.host_and_port().unwrap_or("localhost");
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }
}

/// Parsed scheme, the part before `://`.
struct SchemeParts {
    protocol: Protocol,
    dialect: Dialect,
    unix: bool,
    ws: bool,
    tls: bool,
    /// Default path of the requested `CONNECT`.
    connects: Option<&'static str>,
    carrier: Option<fn(String) -> Address>,
}

impl SchemeParts {
    fn parse(scheme: &str, known: &[Protocol]) -> Result<Self, String> {
        let mut words = scheme.split('+');
        let name = words.next().unwrap_or_default();
        let named = known.iter().find_map(|protocol| Some((*protocol, protocol.descriptor().scheme(name)?)));
        let (protocol, (scheme, tls)) =
            named.ok_or_else(|| format!("the protocol `{name}` is none of {}", schemes(known)))?;
        let dialect = Dialect::new(scheme);
        let mut said = Self { protocol, dialect, unix: false, ws: false, tls, connects: None, carrier: None };
        let own: Vec<_> = words.filter(|word| !said.apply(word)).collect();
        said.dialect = (protocol.descriptor().dialect)(scheme, &own)?;
        Ok(said)
    }

    /// Applies a word that selects the transport; returns `false` if the word belongs to the protocol.
    fn apply(&mut self, word: &str) -> bool {
        match (word, self.protocol.descriptor().connect) {
            ("unix", _) => self.unix = true,
            ("ws", _) => self.ws = true,
            ("tls", _) => self.tls = true,
            ("kcp", _) => self.carrier = Some(Address::Kcp),
            ("quic", _) => self.carrier = Some(Address::Quic),
            ("http", Some(connect)) => self.connects = Some(connect.path),
            _ => return false,
        }
        true
    }

    /// Returns the URL with the part after `://`.
    fn at(&self, rest: &str) -> Result<Url, String> {
        let url = self.to(self.address(rest)?);
        self.refuse_beyond(rest)?;
        let path = |usual: Option<&'static str>| match (usual, self.unix) {
            (None, _) => Ok(None),
            (Some(usual), true) => Ok(Some(usual.to_owned())),
            (Some(usual), false) => {
                path(rest, usual).map(|path| Some(path.to_owned())).ok_or("the path has blanks")
            }
        };
        Ok(Url { websocket: path(self.ws.then_some(WEBSOCKET))?, connect: path(self.connects)?, ..url })
    }

    /// Rejects a path or query that would be ignored.
    fn refuse_beyond(&self, rest: &str) -> Result<(), String> {
        if self.unix || self.ws || self.connects.is_some() {
            return Ok(());
        }
        let Some(at) = rest.find(['/', '?', '#']) else { return Ok(()) };
        let beyond = rest.get(at..).unwrap_or_default();
        let (path, query) = beyond.split_once('?').unwrap_or((beyond, ""));
        if !matches!(path, "" | "/") {
            let why = "a path behind the host means nothing here: the method is named by the call, and a prefix by no \
                       protocol; +ws and +http have one";
            return Err(why.to_owned());
        }
        match query.split('&').find(|pair| !pair.is_empty()) {
            // Its value may be a secret.
            Some(pair) => {
                Err(format!("the parameter `{}` is unknown", pair.split('=').next().unwrap_or_default()))
            }
            None => Ok(()),
        }
    }

    fn address(&self, rest: &str) -> Result<Address, &'static str> {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if !self.unix && host.contains('@') {
            // It would be ignored, and would appear in every text that names the server.
            return Err("a user or password does not belong in it: set a credential");
        }
        let address = match (self.unix, host.parse(), self.protocol.descriptor().default_ports) {
            (true, _, _) => Address::Unix(rest.into()),
            (false, Ok(address), _) => address,
            (false, Err(_), Some(ports)) if !host.is_empty() => {
                Address::Tcp(format!("{host}:{}", if self.tls { ports.secure } else { ports.plain }))
            }
            (false, Err(_), _) => return Err("want host:port behind ://"),
        };
        match (address, self.carrier) {
            (address, None) => Ok(address),
            (Address::Tcp(place), Some(carrier)) => Ok(carrier(place)),
            (_, Some(_)) => Err("a Unix socket carries neither KCP nor QUIC"),
        }
    }

    fn to(&self, address: Address) -> Url {
        Url {
            protocol: self.protocol,
            address,
            tls: self.tls,
            dialect: self.dialect.clone(),
            websocket: None,
            connect: None,
        }
    }
}

/// Returns the schemes of these protocols, for an error message.
#[cold]
fn schemes(known: &[Protocol]) -> String {
    let schemes = known.iter().flat_map(|protocol| protocol.descriptor().schemes);
    schemes.map(|scheme| scheme.name).collect::<Vec<_>>().join(", ")
}

/// Returns the part after the host, or the peers' default path if it is empty.
fn path<'a>(rest: &'a str, usual: &'a str) -> Option<&'a str> {
    let path = rest.find('/').and_then(|at| rest.get(at..)).filter(|path| *path != "/").unwrap_or(usual);
    path.bytes().all(|byte| byte.is_ascii_graphic()).then_some(path)
}

/// Default path of a WebSocket.
const WEBSOCKET: &str = rpcx::CONNECT_PATH;

#[cfg(test)]
mod tests {
    use polyrpc_wire::fb_rpc::{self, Magic, ServiceHash};
    use polyrpc_wire::net_rpc::Codec;
    use polyrpc_wire::rest_rpc::{ByteOrder, Generation};

    use super::*;

    fn parse(text: &str) -> Result<Url, Status> {
        Url::parse(text, &Protocol::ALL)
    }

    fn parsed(text: &str) -> (Protocol, String, bool) {
        let url = parse(text).unwrap();
        (url.protocol, url.address.to_string(), url.dialect.words == ["json-rpc"])
    }

    #[test]
    fn urls_name_protocol_and_address() {
        assert_eq!(parsed("baidu-std://h:1"), (Protocol::BaiduStd, "h:1".into(), false));
        assert_eq!(parsed("rpcx://[::1]:2"), (Protocol::Rpcx, "[::1]:2".into(), false));
        assert_eq!(parsed("fb-rpc://h:1"), (Protocol::FbRpc, "h:1".into(), false));
        assert_eq!(parsed("http://h/"), (Protocol::Http, "h:80".into(), false));
        assert_eq!(parsed("http+json-rpc://h:3/"), (Protocol::Http, "h:3".into(), true));
        assert_eq!(parsed("rpcx+unix:///run/x"), (Protocol::Rpcx, "unix:/run/x".into(), false));
    }

    #[test]
    fn a_url_with_a_password_is_refused_and_not_repeated() {
        for text in ["rpcx://me:hunter2@h:1", "https://me:hunter2@h/x", "nothing://me:hunter2@h:1"] {
            let error = parse(text).unwrap_err();
            assert!(!error.message().contains("ter2"), "{error}");
        }
        assert_eq!(parsed("rpcx+unix:///run/a@b").1, "unix:/run/a@b");
    }

    #[test]
    fn a_url_may_ask_for_a_carrier() {
        assert_eq!(parsed("rpcx+kcp://h:1"), (Protocol::Rpcx, "kcp://h:1".into(), false));
        assert_eq!(parsed("http+quic+json-rpc://h:1/"), (Protocol::Http, "quic://h:1".into(), true));
        assert_eq!(parse("grpc+quic://[::1]:1").unwrap().host(), "::1");
        assert!(parse("rpcx+kcp+unix:///run/x").is_err());
    }

    #[test]
    fn words_behind_fb_rpc_choose_its_magic_and_its_hash() {
        for (text, magic, hash) in [
            ("fb-rpc://h:1", Magic::Frpc, ServiceHash::OneDot),
            ("fb-rpc+two-dots://h:1", Magic::Frpc, ServiceHash::TwoDots),
            ("fb-rpc+brpc://h:1", Magic::Brpc, ServiceHash::OneDot),
            ("fb-rpc+brpc+two-dots://h:1", Magic::Brpc, ServiceHash::TwoDots),
            ("fb-rpc+pr3197://h:1", Magic::Brpc, ServiceHash::TwoDots),
        ] {
            assert_eq!(fb_rpc::variant(&parse(text).unwrap().dialect.words), Ok((magic, hash)), "{text}");
        }
    }

    #[test]
    fn a_websocket_is_where_rpcx_has_it_unless_the_url_says_otherwise() {
        let path = |text| parse(text).unwrap().websocket;
        assert_eq!(path("rpcx://h:1/"), None);
        assert_eq!(path("rpcx+ws://h:1"), Some("/_rpcx_".to_owned()));
        assert_eq!(path("grpc+ws://h:1/"), Some("/_rpcx_".to_owned()));
        assert_eq!(path("http+ws://h/calls?x=1"), Some("/calls?x=1".to_owned()));
        assert_eq!(path("rpcx+ws+unix:///run/x"), Some("/_rpcx_".to_owned()));
    }

    #[test]
    fn a_url_may_ask_for_tls() {
        for (text, protocol, address, host) in [
            ("grpcs://h:1", Protocol::Grpc, "h:1", "h"),
            ("grpc+tls://[::1]:1", Protocol::Grpc, "[::1]:1", "::1"),
            ("https://h/", Protocol::Http, "h:443", "h"),
            ("https+json-rpc://h:8443/", Protocol::Http, "h:8443", "h"),
            ("baidu-std+tls://1.2.3.4:1", Protocol::BaiduStd, "1.2.3.4:1", "1.2.3.4"),
            ("rpcx+unix+tls:///run/x", Protocol::Rpcx, "unix:/run/x", "localhost"),
        ] {
            let url = parse(text).unwrap();
            assert!(url.tls, "{text}");
            assert_eq!((url.protocol, &*url.address.to_string(), url.host()), (protocol, address, host));
        }
        assert!(!parse("http://h").unwrap().tls);
    }

    #[test]
    fn a_url_of_grpc_web_names_the_version_of_http() {
        for (text, web, tls, begins_with) in [
            ("grpc://h:1", "grpc", false, Protocol::Grpc),
            ("grpc-web://h:1", "grpc-web", false, Protocol::Http),
            ("grpc_web+tls://h:1", "grpc-web", true, Protocol::Http),
            ("grpc-web+h2://h:1", "grpc-web+h2", false, Protocol::Grpc),
            ("connect://h:1", "connect", false, Protocol::Http),
            ("connect+tls+h2+get://h:1", "connect+h2+get", true, Protocol::Grpc),
            ("grpc-web+tls+h2://h:1", "grpc-web+h2", true, Protocol::Grpc),
            ("grpc-web+unix:///run/x", "grpc-web", false, Protocol::Http),
        ] {
            let url = parse(text).unwrap();
            let way =
                |url: &Url| [&[url.dialect.scheme.to_owned()][..], &url.dialect.words].concat().join("+");
            assert_eq!((url.protocol, way(&url), url.tls), (Protocol::Grpc, web.to_owned(), tls), "{text}");
            assert_eq!(url.begins_with(), begins_with, "{text}");
        }
        assert!(parse("grpc+h2://h:1").is_err());
    }

    #[test]
    fn a_url_of_rest_rpc_names_its_generation() {
        for (text, generation) in [
            ("rest-rpc://h:1", Generation::default()),
            ("rest-rpc+v0.04://h:1", Generation::V0_04),
            ("rest-rpc+v0.08+unix:///run/x", Generation::V0_11),
            ("rest-rpc+v0.21-big-endian://h:1", Generation::V0_21(ByteOrder::Big)),
        ] {
            let url = parse(text).unwrap();
            assert_eq!(
                (url.protocol, Generation::named(&url.dialect.words)),
                (Protocol::RestRpc, Ok(generation))
            );
        }
    }

    #[test]
    fn urls_of_net_rpc_name_a_codec_and_whether_http_comes_first() {
        for (text, codec, connect) in [
            ("net-rpc://h:1", Codec::Gob, None),
            ("net_rpc+json://h:1", Codec::Json, None),
            ("net-rpc+msgpack+unix:///run/x", Codec::MessagePack, None),
            ("net-rpc+http://h:1/", Codec::Gob, Some("/_goRPC_")),
            ("net-rpc+http+protobuf://h:1/rpc", Codec::Protobuf, Some("/rpc")),
            ("net-rpc+unix+http:///run/x", Codec::Gob, Some("/_goRPC_")),
        ] {
            let url = parse(text).unwrap();
            assert_eq!((url.protocol, url.connect.as_deref()), (Protocol::NetRpc, connect));
            assert_eq!(Codec::named(&url.dialect.words), Ok(codec));
        }
    }

    #[test]
    fn a_wrong_url_says_what_is_wrong_with_it() {
        for (text, why) in [
            ("127.0.0.1:80", "want protocol://host:port"),
            (
                "ftp://h:1",
                "the protocol `ftp` is none of baidu-std, rpcx, fb-rpc, grpc, grpc-web, connect, http, rest-rpc, net-rpc",
            ),
            ("rest-rpc+v7://h:1", "`+v7`: want a tag of rest_rpc"),
            ("rpcx+json-rpc://h:1", "`+json-rpc` is unknown here"),
            ("rpcx+json://h:1", "`+json` is unknown here"),
            ("net-rpc+gob+json://h:1", "`+json` is unknown here"),
            ("rpcx://h", "want host:port"),
            ("rpcx+ws://h:1/a b", "the path has blanks"),
            ("http://h:1/prefix", "a path behind the host means nothing here"),
            ("grpc://h:1/a.B/C", "a path behind the host means nothing here"),
            ("http+json-rpc://h/rpc?x=1", "a path behind the host means nothing here"),
            ("rpcx://h:1#part", "a path behind the host means nothing here"),
            ("rpcx://h:1?timeout=1&x", "the parameter `timeout` is unknown"),
            ("https://h/?x=hunter2", "the parameter `x` is unknown"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
    }
}

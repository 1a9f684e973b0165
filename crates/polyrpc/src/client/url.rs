use std::time::Duration;

use polyrpc_core::{Protocol, Status};
use polyrpc_wire::fb_rpc::{Magic, ServiceHash};
use polyrpc_wire::net_rpc;
use polyrpc_wire::net_rpc::Codec;
use polyrpc_wire::rest_rpc::{Generation, UnknownGeneration};

use crate::discovery::{self, Attributes, Instance, Network};
use crate::transport::Address;

/// Where a client calls and how: `baidu-std://127.0.0.1:8000`, `rpcx://host:8972`, `http://host`,
/// `rpcx+unix:///run/echo.sock`, `rpcx+ws://host:8972`, `http+json-rpc://host/`, `rest-rpc+v0.11://host:9000`,
/// `net-rpc+json://host:1234`, `net-rpc+http://host:1234`, `rpcx+http://host:8972`, `fb-rpc+two-dots://host:8000`; with TLS `grpcs://host:443`,
/// `https://host`, `rpcx+tls://host:8972`; gRPC-Web by HTTP/1.1 `grpc-web://host:8080`, by HTTP/2 `grpc-web+h2://host:8080`;
/// over UDP `rpcx+kcp://host:8973`, `rpcx+quic://host:8974`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) protocol: Protocol,
    pub(crate) address: Address,
    pub(crate) tls: bool,
    /// HTTP carries JSON-RPC 2.0 objects instead of the method in the path.
    pub(crate) json_rpc: bool,
    /// gRPC is spoken as browsers do, and by what.
    pub(crate) web: Option<Http>,
    /// Which fb_rpc is spoken: `fb-rpc+two-dots://` chooses the hash, `fb-rpc+brpc://` the magic, and
    /// `fb-rpc+pr3197://` both.
    pub(crate) fb_rpc: (Magic, ServiceHash),
    /// What of rest_rpc is spoken.
    pub(crate) generation: Generation,
    /// The path on the server at which a WebSocket carries the protocol.
    pub(crate) websocket: Option<String>,
    /// How net/rpc is written.
    pub(crate) codec: Codec,
    /// The path of the `CONNECT` that a connection of net/rpc or rpcx begins with.
    pub(crate) connect: Option<String>,
}

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Http {
    One,
    Two,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        let wrong = |why: &str| {
            Status::invalid_argument(format!("`{}` is no URL to call: {why}", discovery::redacted(text)))
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("want protocol://host:port"))?;
        let words = SchemeParts::parse(scheme).map_err(|why| wrong(&why))?;
        words.at(rest).map_err(|why| wrong(&why))
    }

    /// Protocol and variants alone, for servers that are found elsewhere: what stands before `://`.
    pub(crate) fn from_scheme(scheme: &str) -> Result<Self, Status> {
        let words = SchemeParts::parse(scheme)
            .map_err(|why| Status::invalid_argument(format!("`{scheme}` is no protocol: {why}")))?;
        let nowhere = words.carrier.unwrap_or(Address::Tcp);
        Ok(Self {
            websocket: words.ws.then(|| WEBSOCKET.to_owned()),
            connect: words.connects.then(|| connect_path(words.protocol).to_owned()),
            ..words.to(nowhere(String::new()))
        })
    }

    /// How long a connection is left alone once it is made.
    pub(crate) fn settle_time(&self) -> Option<Duration> {
        match (self.protocol, &self.websocket) {
            (Protocol::RestRpc, None) => self.generation.settle_time(),
            _ => None,
        }
    }

    /// The same at this server. One of which no more is known than TCP is reached as the URL says.
    pub(crate) fn at(&self, instance: &Instance) -> Result<Self, Status> {
        // Not every instance was read from a text.
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
            // It has TLS of its own.
            Network::Quic => url.tls = false,
            Network::Ws | Network::Wss => {
                url.tls |= instance.network == Network::Wss;
                url.websocket.get_or_insert_with(|| WEBSOCKET.to_owned());
            }
            Network::Http => match self.protocol {
                Protocol::Rpcx | Protocol::NetRpc => {
                    url.connect.get_or_insert_with(|| connect_path(self.protocol).to_owned());
                }
                Protocol::Http => {}
                other => {
                    let other = other.as_str();
                    return Err(Status::unimplemented(format!(
                        "{other} is not spoken behind HTTP's CONNECT"
                    )));
                }
            },
        }
        Ok(url)
    }

    /// The server at this URL, as a registry would list it.
    pub(crate) fn instance(&self) -> Instance {
        let (network, address) = match &self.address {
            Address::Tcp(place) => (Network::Tcp, place.clone()),
            Address::Unix(path) => (Network::Unix, path.display().to_string()),
            Address::Kcp(place) => (Network::Kcp, place.clone()),
            Address::Quic(place) => (Network::Quic, place.clone()),
        };
        Instance { network, address, attributes: Attributes::new() }
    }

    /// The address of a server in this process.
    pub(crate) fn in_process(protocol: Protocol, codec: Codec) -> Self {
        Self {
            protocol,
            address: Address::Unix("in-process".into()),
            tls: false,
            json_rpc: false,
            web: None,
            generation: Generation::default(),
            websocket: None,
            codec,
            connect: None,
            fb_rpc: Default::default(),
        }
    }

    /// The protocol that a connection begins with where it is to be named: a WebSocket is asked for by HTTP/1.1, whatever
    /// it carries, as is gRPC-Web.
    pub(crate) fn begins_with(&self) -> Protocol {
        match self.websocket.is_some() || self.web == Some(Http::One) {
            true => Protocol::Http,
            false => self.protocol,
        }
    }

    /// Whether a connection takes one call at a time.
    pub(crate) fn is_one_at_a_time(&self) -> bool {
        match self.protocol {
            Protocol::Http => true,
            Protocol::Grpc => self.web == Some(Http::One),
            Protocol::RestRpc => self.generation.is_one_at_a_time(),
            _ => false,
        }
    }

    /// The server's name, as HTTP asks for it. A Unix socket has none.
    pub(crate) fn authority(&self) -> String {
        self.address.host_and_port().unwrap_or("localhost").to_owned()
    }

    /// The host that a certificate must be for. A Unix socket is of this one.
    pub(crate) fn host(&self) -> &str {
        let place = self.address.host_and_port().unwrap_or("localhost");
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }
}

/// What stands before `://`.
struct SchemeParts {
    protocol: Protocol,
    unix: bool,
    ws: bool,
    tls: bool,
    json_rpc: bool,
    web: Option<Http>,
    connects: bool,
    carrier: Option<fn(String) -> Address>,
    fb_rpc: (Magic, ServiceHash),
    generation: Generation,
    codec: Option<Codec>,
}

impl SchemeParts {
    fn parse(scheme: &str) -> Result<Self, String> {
        let mut words = scheme.split('+');
        let name = words.next().unwrap_or_default();
        let protocol = match name {
            "baidu-std" | "baidu_std" => Protocol::BaiduStd,
            "rpcx" => Protocol::Rpcx,
            "fb-rpc" | "fb_rpc" => Protocol::FbRpc,
            "grpc" | "grpcs" | "grpc-web" | "grpc_web" => Protocol::Grpc,
            "http" | "https" => Protocol::Http,
            "rest-rpc" | "rest_rpc" => Protocol::RestRpc,
            "net-rpc" | "net_rpc" => Protocol::NetRpc,
            other => return Err(format!("the protocol `{other}` is none of {SCHEMES}")),
        };
        let mut said = Self {
            protocol,
            unix: false,
            ws: false,
            tls: matches!(name, "grpcs" | "https"),
            json_rpc: false,
            web: matches!(name, "grpc-web" | "grpc_web").then_some(Http::One),
            connects: false,
            carrier: None,
            fb_rpc: Default::default(),
            generation: Generation::default(),
            codec: None,
        };
        words.try_for_each(|word| said.apply(word))?;
        Ok(said)
    }

    fn apply(&mut self, word: &str) -> Result<(), String> {
        let named = Codec::ALL.into_iter().find(|codec| codec.as_str() == word);
        match (word, self.protocol, named) {
            ("unix", _, _) => self.unix = true,
            ("ws", _, _) => self.ws = true,
            ("tls", _, _) => self.tls = true,
            ("kcp", _, _) => self.carrier = Some(Address::Kcp),
            ("quic", _, _) => self.carrier = Some(Address::Quic),
            ("json-rpc", Protocol::Http, _) => self.json_rpc = true,
            ("h2", _, _) if self.web.is_some() => self.web = Some(Http::Two),
            ("pr3197", Protocol::FbRpc, _) => self.fb_rpc = (Magic::Brpc, ServiceHash::TwoDots),
            ("brpc", Protocol::FbRpc, _) => self.fb_rpc.0 = Magic::Brpc,
            ("two-dots", Protocol::FbRpc, _) => self.fb_rpc.1 = ServiceHash::TwoDots,
            ("http", Protocol::NetRpc | Protocol::Rpcx, _) => self.connects = true,
            (_, Protocol::NetRpc, Some(named)) if self.codec.is_none() => self.codec = Some(named),
            (word, Protocol::RestRpc, _) => {
                self.generation =
                    word.parse().map_err(|error: UnknownGeneration| format!("`+{word}`: {error}"))?;
            }
            (other, _, _) => return Err(format!("`+{other}` is unknown here")),
        }
        Ok(())
    }

    /// The URL with what stands behind `://`.
    fn at(&self, rest: &str) -> Result<Url, String> {
        let url = self.to(self.address(rest)?);
        self.refuse_beyond(rest)?;
        let path = |said: bool, usual: &'static str| match (said, self.unix) {
            (false, _) => Ok(None),
            (true, true) => Ok(Some(usual.to_owned())),
            (true, false) => path(rest, usual).map(|path| Some(path.to_owned())).ok_or("the path has blanks"),
        };
        Ok(Url {
            websocket: path(self.ws, WEBSOCKET)?,
            connect: path(self.connects, connect_path(self.protocol))?,
            ..url
        })
    }

    /// Refuses what stands behind the host where nothing would read it.
    fn refuse_beyond(&self, rest: &str) -> Result<(), String> {
        if self.unix || self.ws || self.connects {
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
            // Nothing would read it, and it would stand in every text that names the server.
            return Err("a user or password does not belong in it: set a credential");
        }
        let address = match (self.unix, host.parse(), self.protocol) {
            (true, _, _) => Address::Unix(rest.into()),
            (false, Ok(address), _) => address,
            (false, Err(_), Protocol::Http) if !host.is_empty() => {
                Address::Tcp(format!("{host}:{}", if self.tls { 443 } else { 80 }))
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
            json_rpc: self.json_rpc,
            web: self.web,
            fb_rpc: self.fb_rpc,
            generation: self.generation,
            websocket: None,
            codec: self.codec.unwrap_or_default(),
            connect: None,
        }
    }
}

const SCHEMES: &str = "baidu-std, rpcx, fb-rpc, grpc, grpc-web, http, rest-rpc, net-rpc";

/// What stands behind the host; the peers' own path if that is nothing.
fn path<'a>(rest: &'a str, usual: &'a str) -> Option<&'a str> {
    let path = rest.find('/').and_then(|at| rest.get(at..)).filter(|path| *path != "/").unwrap_or(usual);
    path.bytes().all(|byte| byte.is_ascii_graphic()).then_some(path)
}

/// Where rpcx has its WebSocket (rpcx `share/share.go`).
const WEBSOCKET: &str = "/_rpcx_";

/// Where a server goes over from HTTP to its own protocol.
fn connect_path(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Rpcx => WEBSOCKET,
        _ => net_rpc::CONNECT_PATH,
    }
}

#[cfg(test)]
mod tests {
    use polyrpc_wire::rest_rpc::ByteOrder;

    use super::*;

    fn parsed(text: &str) -> (Protocol, String, bool) {
        let url = Url::parse(text).unwrap();
        (url.protocol, url.address.to_string(), url.json_rpc)
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
            let error = Url::parse(text).unwrap_err();
            assert!(!error.message().contains("ter2"), "{error}");
        }
        assert_eq!(parsed("rpcx+unix:///run/a@b").1, "unix:/run/a@b");
    }

    #[test]
    fn a_url_may_ask_for_a_carrier() {
        assert_eq!(parsed("rpcx+kcp://h:1"), (Protocol::Rpcx, "kcp://h:1".into(), false));
        assert_eq!(parsed("http+quic+json-rpc://h:1/"), (Protocol::Http, "quic://h:1".into(), true));
        assert_eq!(Url::parse("grpc+quic://[::1]:1").unwrap().host(), "::1");
        assert!(Url::parse("rpcx+kcp+unix:///run/x").is_err());
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
            assert_eq!(Url::parse(text).unwrap().fb_rpc, (magic, hash), "{text}");
        }
    }

    #[test]
    fn a_websocket_is_where_rpcx_has_it_unless_the_url_says_otherwise() {
        let path = |text| Url::parse(text).unwrap().websocket;
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
            let url = Url::parse(text).unwrap();
            assert!(url.tls, "{text}");
            assert_eq!((url.protocol, &*url.address.to_string(), url.host()), (protocol, address, host));
        }
        assert!(!Url::parse("http://h").unwrap().tls);
    }

    #[test]
    fn a_url_of_grpc_web_names_the_version_of_http() {
        for (text, web, tls, begins_with) in [
            ("grpc://h:1", None, false, Protocol::Grpc),
            ("grpc-web://h:1", Some(Http::One), false, Protocol::Http),
            ("grpc_web+tls://h:1", Some(Http::One), true, Protocol::Http),
            ("grpc-web+h2://h:1", Some(Http::Two), false, Protocol::Grpc),
            ("grpc-web+tls+h2://h:1", Some(Http::Two), true, Protocol::Grpc),
            ("grpc-web+unix:///run/x", Some(Http::One), false, Protocol::Http),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.protocol, url.web, url.tls), (Protocol::Grpc, web, tls), "{text}");
            assert_eq!(url.begins_with(), begins_with, "{text}");
        }
        assert!(Url::parse("grpc+h2://h:1").is_err());
    }

    #[test]
    fn a_url_of_rest_rpc_names_its_generation() {
        for (text, generation) in [
            ("rest-rpc://h:1", Generation::default()),
            ("rest-rpc+v0.04://h:1", Generation::V0_04),
            ("rest-rpc+v0.08+unix:///run/x", Generation::V0_11),
            ("rest-rpc+v0.21-big-endian://h:1", Generation::V0_21(ByteOrder::Big)),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.protocol, url.generation), (Protocol::RestRpc, generation));
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
            let url = Url::parse(text).unwrap();
            assert_eq!((url.protocol, url.codec, url.connect.as_deref()), (Protocol::NetRpc, codec, connect));
        }
    }

    #[test]
    fn a_wrong_url_says_what_is_wrong_with_it() {
        for (text, why) in [
            ("127.0.0.1:80", "want protocol://host:port"),
            (
                "ftp://h:1",
                "the protocol `ftp` is none of baidu-std, rpcx, fb-rpc, grpc, grpc-web, http, rest-rpc, net-rpc",
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
            let error = Url::parse(text).unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
    }
}

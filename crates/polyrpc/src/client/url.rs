use polyrpc_wire::fb_rpc::Dialect;
use polyrpc_wire::net_rpc::{self, Codec};
use polyrpc_wire::rest_rpc::{Generation, UnknownGeneration};
use polyrpc_wire::{Protocol, Status};

use crate::net::Address;

/// Where a client calls and how: `baidu-std://127.0.0.1:8000`, `rpcx://host:8972`, `http://host`,
/// `rpcx+unix:///run/echo.sock`, `rpcx+ws://host:8972`, `http+json-rpc://host/`, `rest-rpc+v0.11://host:9000`,
/// `net-rpc+json://host:1234`, `net-rpc+http://host:1234`; with TLS `grpcs://host:443`, `https://host`,
/// `rpcx+tls://host:8972`; over UDP `rpcx+kcp://host:8973`, `rpcx+quic://host:8974`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) protocol: Protocol,
    pub(crate) address: Address,
    pub(crate) tls: bool,
    /// HTTP carries JSON-RPC 2.0 objects instead of the method in the path.
    pub(crate) json_rpc: bool,
    /// Which fb_rpc is spoken: `fb-rpc+pr3197://` is the older.
    pub(crate) fb_rpc: Dialect,
    /// What of rest_rpc is spoken.
    pub(crate) generation: Generation,
    /// The path on the server at which a WebSocket carries the protocol.
    pub(crate) websocket: Option<String>,
    /// How net/rpc is written.
    pub(crate) codec: Codec,
    /// The path of the `CONNECT` that a connection of net/rpc begins with.
    pub(crate) connect: Option<String>,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        let wrong = |why: &str| Status::invalid_argument(format!("`{text}` is no URL to call: {why}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("want protocol://host:port"))?;
        let mut words = scheme.split('+');
        let name = words.next().unwrap_or_default();
        let protocol = match name {
            "baidu-std" | "baidu_std" => Protocol::BaiduStd,
            "rpcx" => Protocol::Rpcx,
            "fb-rpc" | "fb_rpc" => Protocol::FbRpc,
            "grpc" | "grpcs" => Protocol::Grpc,
            "http" | "https" => Protocol::Http,
            "rest-rpc" | "rest_rpc" => Protocol::RestRpc,
            "net-rpc" | "net_rpc" => Protocol::NetRpc,
            other => {
                return Err(wrong(&format!("the protocol `{other}` is none of {SCHEMES}")));
            }
        };
        let (mut unix, mut ws, mut json_rpc, mut connects) = (false, false, false, false);
        let mut carrier: Option<fn(String) -> Address> = None;
        let (mut generation, mut codec) = (Generation::default(), None);
        let mut fb_rpc = Dialect::default();
        let mut tls = matches!(name, "grpcs" | "https");
        for word in words {
            let named = Codec::ALL.into_iter().find(|codec| codec.as_str() == word);
            match (word, named) {
                ("unix", _) => unix = true,
                ("ws", _) => ws = true,
                ("tls", _) => tls = true,
                ("kcp", _) => carrier = Some(Address::Kcp),
                ("quic", _) => carrier = Some(Address::Quic),
                ("json-rpc", _) if protocol == Protocol::Http => json_rpc = true,
                ("pr3197", _) if protocol == Protocol::FbRpc => fb_rpc = Dialect::Pr3197,
                ("http", _) if protocol == Protocol::NetRpc => connects = true,
                (_, Some(named)) if protocol == Protocol::NetRpc && codec.is_none() => codec = Some(named),
                (word, _) if protocol == Protocol::RestRpc => {
                    generation = word
                        .parse()
                        .map_err(|error: UnknownGeneration| wrong(&format!("`+{word}`: {error}")))?;
                }
                (other, _) => return Err(wrong(&format!("`+{other}` is unknown here"))),
            }
        }
        let address = if unix {
            Address::Unix(rest.into())
        } else {
            let host = rest.split(['/', '?']).next().unwrap_or_default();
            match (host.parse(), protocol) {
                (Ok(address), _) => address,
                (Err(_), Protocol::Http) if !host.is_empty() => {
                    Address::Tcp(format!("{host}:{}", if tls { 443 } else { 80 }))
                }
                (Err(_), _) => return Err(wrong("want host:port behind ://")),
            }
        };
        let address = match (address, carrier) {
            (address, None) => address,
            (Address::Tcp(place), Some(carrier)) => carrier(place),
            (_, Some(_)) => return Err(wrong("a Unix socket carries neither KCP nor QUIC")),
        };
        let websocket = match (ws, unix) {
            (false, _) => None,
            (true, true) => Some(WEBSOCKET.to_owned()),
            (true, false) => {
                Some(path(rest, WEBSOCKET).ok_or_else(|| wrong("the path has blanks"))?.to_owned())
            }
        };
        let connect = match (connects, unix) {
            (false, _) => None,
            (true, true) => Some(net_rpc::CONNECT_PATH.to_owned()),
            (true, false) => {
                let path = path(rest, net_rpc::CONNECT_PATH).ok_or_else(|| wrong("the path has blanks"))?;
                Some(path.to_owned())
            }
        };
        let codec = codec.unwrap_or_default();
        Ok(Self { protocol, address, tls, json_rpc, generation, websocket, codec, connect, fb_rpc })
    }

    /// The address of a server in this process.
    pub(crate) fn in_process(protocol: Protocol, codec: Codec) -> Self {
        Self {
            protocol,
            address: Address::Unix("in-process".into()),
            tls: false,
            json_rpc: false,
            generation: Generation::default(),
            websocket: None,
            codec,
            connect: None,
            fb_rpc: Dialect::default(),
        }
    }

    /// The server's name, as HTTP asks for it. A Unix socket has none.
    pub(crate) fn authority(&self) -> String {
        self.address.place().unwrap_or("localhost").to_owned()
    }

    /// The host that a certificate must be for. A Unix socket is of this one.
    pub(crate) fn host(&self) -> &str {
        let place = self.address.place().unwrap_or("localhost");
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }
}

const SCHEMES: &str = "baidu-std, rpcx, fb-rpc, grpc, http, rest-rpc, net-rpc";

/// What stands behind the host; the peers' own path if that is nothing.
fn path<'a>(rest: &'a str, usual: &'a str) -> Option<&'a str> {
    let path = rest.find('/').and_then(|at| rest.get(at..)).filter(|path| *path != "/").unwrap_or(usual);
    path.bytes().all(|byte| byte.is_ascii_graphic()).then_some(path)
}

/// Where rpcx has its WebSocket (rpcx `share/share.go`).
const WEBSOCKET: &str = "/_rpcx_";

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
        assert_eq!(parsed("http://h/ignored"), (Protocol::Http, "h:80".into(), false));
        assert_eq!(parsed("http+json-rpc://h:3/"), (Protocol::Http, "h:3".into(), true));
        assert_eq!(parsed("rpcx+unix:///run/x"), (Protocol::Rpcx, "unix:/run/x".into(), false));
    }

    #[test]
    fn a_url_may_ask_for_a_carrier() {
        assert_eq!(parsed("rpcx+kcp://h:1"), (Protocol::Rpcx, "kcp://h:1".into(), false));
        assert_eq!(parsed("http+quic+json-rpc://h:1/"), (Protocol::Http, "quic://h:1".into(), true));
        assert_eq!(Url::parse("grpc+quic://[::1]:1").unwrap().host(), "::1");
        assert!(Url::parse("rpcx+kcp+unix:///run/x").is_err());
    }

    #[test]
    fn a_word_behind_fb_rpc_chooses_its_dialect() {
        assert_eq!(Url::parse("fb-rpc://h:1").unwrap().fb_rpc, Dialect::Pr3559);
        assert_eq!(Url::parse("fb-rpc+pr3197://h:1").unwrap().fb_rpc, Dialect::Pr3197);
    }

    #[test]
    fn a_websocket_is_where_rpcx_has_it_unless_the_url_says_otherwise() {
        let path = |text| Url::parse(text).unwrap().websocket;
        assert_eq!(path("rpcx://h:1/x"), None);
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
                "the protocol `ftp` is none of baidu-std, rpcx, fb-rpc, grpc, http, rest-rpc, net-rpc",
            ),
            ("rest-rpc+v7://h:1", "`+v7`: want a tag of rest_rpc"),
            ("rpcx+json-rpc://h:1", "`+json-rpc` is unknown here"),
            ("rpcx+json://h:1", "`+json` is unknown here"),
            ("net-rpc+gob+json://h:1", "`+json` is unknown here"),
            ("rpcx://h", "want host:port"),
            ("rpcx+ws://h:1/a b", "the path has blanks"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
    }
}

use polyrpc_wire::net_rpc::{self, Codec};
use polyrpc_wire::{Protocol, Status};

use crate::net::Address;

/// Where a client calls and how: `baidu-std://127.0.0.1:8000`, `rpcx://host:8972`, `http://host`,
/// `rpcx+unix:///run/echo.sock`, `http+json-rpc://host/`, `net-rpc+json://host:1234`, `net-rpc+http://host:1234`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) protocol: Protocol,
    pub(crate) address: Address,
    /// HTTP carries JSON-RPC 2.0 objects instead of the method in the path.
    pub(crate) json_rpc: bool,
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
        let protocol = match words.next().unwrap_or_default() {
            "baidu-std" | "baidu_std" => Protocol::BaiduStd,
            "rpcx" => Protocol::Rpcx,
            "grpc" => Protocol::Grpc,
            "http" => Protocol::Http,
            "net-rpc" | "net_rpc" => Protocol::NetRpc,
            other => {
                let known = "baidu-std, rpcx, grpc, http, net-rpc";
                return Err(wrong(&format!("the protocol `{other}` is none of {known}")));
            }
        };
        let (mut unix, mut json_rpc, mut codec, mut connects) = (false, false, None, false);
        for word in words {
            let named = Codec::ALL.into_iter().find(|codec| codec.as_str() == word);
            match (word, named) {
                ("unix", _) => unix = true,
                ("json-rpc", _) if protocol == Protocol::Http => json_rpc = true,
                ("http", _) if protocol == Protocol::NetRpc => connects = true,
                (_, Some(named)) if protocol == Protocol::NetRpc && codec.is_none() => codec = Some(named),
                (other, _) => return Err(wrong(&format!("`+{other}` is unknown here"))),
            }
        }
        let address = if unix {
            Address::Unix(rest.into())
        } else {
            let host = rest.split(['/', '?']).next().unwrap_or_default();
            match (host.parse(), protocol) {
                (Ok(address), _) => address,
                (Err(_), Protocol::Http) if !host.is_empty() => Address::Tcp(format!("{host}:80")),
                (Err(_), _) => return Err(wrong("want host:port behind ://")),
            }
        };
        let connect = connects.then(|| connect_path(rest, unix).to_owned());
        Ok(Self { protocol, address, json_rpc, codec: codec.unwrap_or_default(), connect })
    }

    /// The address of a server in this process.
    pub(crate) fn in_process(protocol: Protocol, codec: Codec) -> Self {
        let address = Address::Unix("in-process".into());
        Self { protocol, address, json_rpc: false, codec, connect: None }
    }

    /// The server's name, as HTTP asks for it. A Unix socket has none.
    pub(crate) fn authority(&self) -> String {
        match &self.address {
            Address::Tcp(address) => address.clone(),
            Address::Unix(_) => "localhost".to_owned(),
        }
    }
}

/// The path behind host and port: Go's own where there is none. The path of a Unix socket leaves no room for one.
fn connect_path(rest: &str, unix: bool) -> &str {
    let path = rest.find('/').and_then(|at| rest.get(at..)).filter(|path| !unix && *path != "/");
    path.unwrap_or(net_rpc::CONNECT_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Protocol, String, bool) {
        let url = Url::parse(text).unwrap();
        (url.protocol, url.address.to_string(), url.json_rpc)
    }

    #[test]
    fn urls_name_protocol_and_address() {
        assert_eq!(parsed("baidu-std://h:1"), (Protocol::BaiduStd, "h:1".into(), false));
        assert_eq!(parsed("rpcx://[::1]:2"), (Protocol::Rpcx, "[::1]:2".into(), false));
        assert_eq!(parsed("http://h/ignored"), (Protocol::Http, "h:80".into(), false));
        assert_eq!(parsed("http+json-rpc://h:3/"), (Protocol::Http, "h:3".into(), true));
        assert_eq!(parsed("rpcx+unix:///run/x"), (Protocol::Rpcx, "unix:/run/x".into(), false));
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
            ("ftp://h:1", "the protocol `ftp` is none of baidu-std, rpcx, grpc, http, net-rpc"),
            ("rpcx+json-rpc://h:1", "`+json-rpc` is unknown here"),
            ("rpcx+json://h:1", "`+json` is unknown here"),
            ("net-rpc+gob+json://h:1", "`+json` is unknown here"),
            ("rpcx://h", "want host:port"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
    }
}

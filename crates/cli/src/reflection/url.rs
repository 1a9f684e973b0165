//! URL of the same server over another protocol.

use polyrpc::client::registry_url;

use crate::url::Url;

/// Returns the gRPC URL of the server of a URL: servers of several protocols serve them on one port.
pub(crate) fn grpc_url(text: &str) -> Option<String> {
    let url = Url::parse(text)?;
    let mut other = match (&url.registry, url.server()) {
        // The parameters of the registry stay.
        (Some(_), _) => Url::parse(&format!("grpc+{}", registry_url(text)))?,
        (None, server) if url.socket().is_some() || server.contains(':') => Url::new("grpc", server, ""),
        (None, host) if url.protocol == "http" => {
            Url::new("grpc", &format!("{host}:{}", if url.tls { 443 } else { 80 }), "")
        }
        (None, _) => return None,
    };
    other.tls = url.tls;
    let transport = url.parameter("transport").filter(|name| ["kcp", "quic"].contains(name));
    other.parameters.extend(transport.map(|name| ("transport".to_owned(), name.to_owned())));
    Some(other.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_keeps_the_transport_and_changes_the_protocol() {
        for (url, by) in [
            ("baidu-std://h:1", Some("grpc://h:1")),
            ("http://h:1/?dialect=json-rpc", Some("grpc://h:1")),
            ("https://h", Some("grpcs://h:443")),
            ("rpcx://h:1/path?transport=ws", Some("grpc://h:1")),
            ("rpcx://h:1?transport=kcp", Some("grpc://h:1?transport=kcp")),
            ("rpcx+tls:///run/x", Some("grpcs:///run/x")),
            ("rpcx:///run/x?transport=unix", Some("grpc:///run/x")),
            ("rpcx+etcd://h:2379/base/Arith", Some("grpc+etcd://h:2379/base/Arith")),
            (
                "net-rpc+consul://h:1/S?codec=json&token=a%20b&transport=quic",
                Some("grpc+consul://h:1/S?token=a%20b&transport=quic"),
            ),
            ("rest-rpc://h:1?version=0.11", Some("grpc://h:1")),
            ("rpcx://h", None),
            ("h:1", None),
        ] {
            assert_eq!(grpc_url(url).as_deref(), by, "{url}");
        }
    }
}

//! URL of the same server over another protocol.

/// Returns the gRPC URL of the server of a URL: servers of several protocols speak them on one port.
pub(crate) fn by_grpc(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let mut words = scheme.split('+');
    let name = words.next()?;
    let kept: Vec<_> = words.filter(|word| CARRIERS.contains(word) || REGISTRIES.contains(word)).collect();
    let has_path = kept.iter().any(|word| *word == "unix" || REGISTRIES.contains(word));
    let place = if has_path { rest } else { rest.split(['/', '?', '#']).next()? };
    let place = match (has_path || place.contains(':'), name) {
        (true, _) => place.to_owned(),
        (false, "https") => format!("{place}:443"),
        (false, "http") => format!("{place}:80"),
        (false, _) => return None,
    };
    let name = if matches!(name, "https" | "grpcs") { "grpcs" } else { "grpc" };
    let scheme: Vec<_> = [name].into_iter().chain(kept).collect();
    Some(format!("{}://{place}", scheme.join("+")))
}

/// Parts of a scheme that select the transport.
const CARRIERS: [&str; 4] = ["unix", "tls", "kcp", "quic"];

/// Parts of a scheme that select a registry.
const REGISTRIES: [&str; 12] = [
    "list",
    "dlist",
    "file",
    "remotefile",
    "dns",
    "mdns",
    "etcd",
    "zookeeper",
    "consul",
    "redis",
    "nacos",
    "kubernetes",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_keeps_the_transport_and_changes_the_protocol() {
        for (url, by) in [
            ("baidu-std://h:1", Some("grpc://h:1")),
            ("http+json-rpc://h:1/", Some("grpc://h:1")),
            ("https://h", Some("grpcs://h:443")),
            ("rpcx+ws://h:1/path", Some("grpc://h:1")),
            ("rpcx+unix+tls:///run/x", Some("grpc+unix+tls:///run/x")),
            ("rpcx+etcd://h:2379/base/Arith", Some("grpc+etcd://h:2379/base/Arith")),
            ("rest-rpc+v0.11://h:1", Some("grpc://h:1")),
            ("rpcx://h", None),
            ("h:1", None),
        ] {
            assert_eq!(by_grpc(url).as_deref(), by, "{url}");
        }
    }
}

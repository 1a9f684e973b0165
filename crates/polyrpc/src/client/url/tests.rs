use polyrpc_core::protocol::{Descriptor, Detection, Parameter};
use polyrpc_wire::connect::UnaryMethod;
use polyrpc_wire::fb_rpc::{self, Magic, ServiceHash};
use polyrpc_wire::http;
use polyrpc_wire::net_rpc::Codec;
use polyrpc_wire::rest_rpc::{ByteOrder, Version};

use super::*;

/// A protocol of another crate.
static LINES: Descriptor = Descriptor {
    schemes: &[polyrpc_core::protocol::Scheme::new("lines")],
    parameters: &[
        Parameter::new("end", &["lf", "crlf", "list"], "end of a line"),
        Parameter::new("tenant", &[], "name of the tenant"),
    ],
    ..Descriptor::new("lines", |_| Detection::Unknown)
};

fn known_protocols() -> Vec<Protocol> {
    Protocol::ALL.into_iter().chain([Protocol::Other(&LINES)]).collect()
}

fn parse(text: &str) -> Result<Url, Status> {
    Url::parse(text, &known_protocols())
}

fn parse_address(text: &str) -> (Protocol, String) {
    let url = parse(text).unwrap_or_else(|error| panic!("{error}"));
    (url.protocol, url.address.to_string())
}

/// Returns the URL of a registry's instance.
fn instance_url(text: &str, instance: &str) -> Url {
    let found = DiscoveryUrl::parse(text, &known_protocols()).unwrap().expect("it names a registry");
    found.url().unwrap().at(&instance.parse().unwrap()).unwrap()
}

#[test]
fn scheme_is_case_insensitive() {
    assert_eq!(parse("GRPC://h:1").unwrap(), parse("grpc://h:1").unwrap());
    assert_eq!(parse("Rest_RPC+TLS://h:1").unwrap(), parse("rest-rpc+tls://h:1").unwrap());
    let registry =
        DiscoveryUrl::parse("RPCX+Etcd://H:1/Base", &known_protocols()).unwrap().expect("a registry");
    assert_eq!((&*registry.registry, &*registry.rest), ("etcd", "H:1/Base"));
}

#[test]
fn urls_name_protocol_and_address() {
    for (text, protocol, address) in [
        ("baidu-std://h:1", Protocol::BaiduStd, "h:1"),
        ("baidu_std://h:1/", Protocol::BaiduStd, "h:1"),
        ("rpcx://[::1]:2", Protocol::Rpcx, "[::1]:2"),
        ("fb-rpc://h:1?", Protocol::FbRpc, "h:1"),
        ("http://h/", Protocol::Http, "h:80"),
        ("http://[::1]", Protocol::Http, "[::1]:80"),
        ("http://h:3/", Protocol::Http, "h:3"),
        ("lines://h:3", Protocol::Other(&LINES), "h:3"),
    ] {
        assert_eq!(parse_address(text), (protocol, address.to_owned()), "{text}");
    }
}

#[test]
fn url_selects_its_transport() {
    for (text, address, websocket, connect) in [
        ("rpcx://h:1?transport=tcp", "h:1", None, None),
        ("rpcx:///run/x", "unix:/run/x", None, None),
        ("rpcx:///run/x?transport=unix", "unix:/run/x", None, None),
        ("http:///run/x?dialect=json-rpc", "unix:/run/x", None, None),
        ("rpcx:///run/a@b%20%3Fc", "unix:/run/a@b ?c", None, None),
        ("rpcx://h:1?transport=kcp", "kcp://h:1", None, None),
        ("http://h?transport=quic&dialect=json-rpc", "quic://h:80", None, None),
        ("rpcx://h:1?transport=ws", "h:1", Some("/_rpcx_"), None),
        ("grpc://h:1/?transport=ws", "h:1", Some("/_rpcx_"), None),
        ("http://h/calls?transport=ws", "h:80", Some("/calls"), None),
        ("http://h?transport=ws&http_path=/calls?x=1%26y", "h:80", Some("/calls?x=1&y"), None),
        ("rpcx:///run/x?transport=ws", "unix:/run/x", Some("/_rpcx_"), None),
        ("rpcx:///run/x?transport=ws&http_path=/a", "unix:/run/x", Some("/a"), None),
        ("rpcx://h:1?transport=http-connect", "h:1", None, Some("/_rpcx_")),
        ("net-rpc://h:1/?transport=http-connect", "h:1", None, Some("/_goRPC_")),
        ("net-rpc://h:1/rpc?transport=http-connect", "h:1", None, Some("/rpc")),
        ("net-rpc:///run/x?transport=http-connect", "unix:/run/x", None, Some("/_goRPC_")),
    ] {
        let url = parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(url.address.to_string(), address, "{text}");
        assert_eq!((url.websocket.as_deref(), url.connect.as_deref()), (websocket, connect), "{text}");
    }
}

#[test]
fn scheme_selects_tls() {
    for (text, protocol, address, host, tls) in [
        ("grpcs://h:1", Protocol::Grpc, "h:1", "h", true),
        ("grpc+tls://[::1]:1", Protocol::Grpc, "[::1]:1", "::1", true),
        ("https://h/", Protocol::Http, "h:443", "h", true),
        ("http+tls://h/", Protocol::Http, "h:443", "h", true),
        ("https://h:8443/?dialect=json-rpc", Protocol::Http, "h:8443", "h", true),
        ("baidu-std+tls://1.2.3.4:1", Protocol::BaiduStd, "1.2.3.4:1", "1.2.3.4", true),
        ("rpcx+tls:///run/x", Protocol::Rpcx, "unix:/run/x", "localhost", true),
        ("rpcx+tls://h:1?transport=ws", Protocol::Rpcx, "h:1", "h", true),
        // QUIC includes TLS, so that neither spelling adds any.
        ("grpcs://h:1?transport=quic", Protocol::Grpc, "quic://h:1", "h", false),
        ("grpc://[::1]:1?transport=quic", Protocol::Grpc, "quic://[::1]:1", "::1", false),
        ("http://h", Protocol::Http, "h:80", "h", false),
    ] {
        let url = parse(text).unwrap();
        assert_eq!(
            (url.protocol, &*url.address.to_string(), url.host()),
            (protocol, address, host),
            "{text}"
        );
        assert_eq!(url.tls, tls, "{text}");
    }
}

#[test]
fn http_url_selects_its_dialect() {
    for (text, is_json_rpc) in
        [("http://h", false), ("http://h?dialect=path", false), ("http://h?dialect=json-rpc", true)]
    {
        assert_eq!(http::is_json_rpc(&parse(text).unwrap().dialect.parameters), is_json_rpc, "{text}");
    }
}

#[test]
fn grpc_web_and_connect_urls_select_http_version_and_method() {
    for (text, scheme, begins_with, method) in [
        ("grpc://h:1", "grpc", Protocol::Grpc, UnaryMethod::Post),
        ("grpc-web://h:1", "grpc-web", Protocol::Http, UnaryMethod::Post),
        ("grpc_web+tls://h:1?http_version=1.1", "grpc-web", Protocol::Http, UnaryMethod::Post),
        ("grpc-web://h:1?http_version=2", "grpc-web", Protocol::Grpc, UnaryMethod::Post),
        ("grpc-web:///run/x", "grpc-web", Protocol::Http, UnaryMethod::Post),
        ("connect://h:1?http_method=post", "connect", Protocol::Http, UnaryMethod::Post),
        ("connect+tls://h:1?http_version=2&http_method=get", "connect", Protocol::Grpc, UnaryMethod::Get),
    ] {
        let url = parse(text).unwrap();
        assert_eq!((url.protocol, url.dialect.scheme), (Protocol::Grpc, scheme), "{text}");
        assert_eq!(url.begins_with(), begins_with, "{text}");
        assert_eq!(UnaryMethod::selected_by(&url.dialect.parameters), method, "{text}");
    }
}

#[test]
fn rest_rpc_fb_rpc_and_net_rpc_urls_select_version_or_codec() {
    for (text, version) in [
        ("rest-rpc://h:1", Version::default()),
        ("rest-rpc://h:1?version=0.04", Version::V0_04),
        ("rest-rpc:///run/x?version=0.08", Version::V0_11),
        ("rest-rpc://h:1?version=0.21&byte_order=big", Version::V0_21(ByteOrder::Big)),
    ] {
        let url = parse(text).unwrap();
        assert_eq!(Version::selected_by(&url.dialect.parameters), Ok(version), "{text}");
        assert_eq!(url.dialect.format, Some(version.format()), "{text}");
    }
    let fb_rpc = parse("fb-rpc://h:1?version=brpc-two-dots").unwrap();
    assert_eq!(fb_rpc::version(&fb_rpc.dialect.parameters), (Magic::Brpc, ServiceHash::TwoDots));
    for (text, codec) in [
        ("net-rpc://h:1", Codec::Gob),
        ("net_rpc://h:1?codec=json", Codec::Json),
        ("net-rpc:///run/x?codec=msgpack&transport=http-connect", Codec::MessagePack),
    ] {
        let dialect = parse(text).unwrap().dialect;
        assert_eq!(Codec::selected_by(&dialect.parameters), codec, "{text}");
        assert_eq!((dialect.format, dialect.only_format), (Some(codec.format()), true), "{text}");
    }
}

#[test]
fn custom_protocol_parameters_are_checked_and_passed_on() {
    let url = parse("lines://h:1?end=crlf&tenant=a%20b&transport=ws").unwrap();
    let parameters: Vec<_> = url.dialect.parameters.iter().collect();
    assert_eq!(parameters, [("end", "crlf"), ("tenant", "a b")]);
    for (text, why) in [
        ("lines://h:1?end=cr", "invalid parameter `end=cr`: expected lf, crlf, list"),
        (
            "lines://h:1?begin=x",
            "the parameter `begin` is unknown: lines:// has transport=tcp|unix|ws|kcp|quic, http_path=…, \
             end=lf|crlf|list, tenant=…",
        ),
    ] {
        assert_refused(parse(text), text, why);
    }
}

#[test]
fn declared_values_are_accepted_only_by_their_schemes() {
    for protocol in known_protocols() {
        let descriptor = protocol.descriptor();
        for scheme in descriptor.schemes {
            for parameter in url_parameters(descriptor) {
                let any: &[&str] = &["/x"];
                for value in if parameter.values.is_empty() { any } else { parameter.values } {
                    let host = if *value == "unix" { "/run/x" } else { "h:1" };
                    let needed = if parameter.name == "http_path" { "transport=ws&" } else { "" };
                    let text = format!("{}://{host}?{needed}{}={value}", scheme.name, parameter.name);
                    match (parse(&text), parameter.belongs_to(scheme.name)) {
                        (Ok(_), true) => {}
                        (Err(error), false) => assert!(error.message().contains("belongs to"), "{error}"),
                        (outcome, _) => panic!("{text}: {outcome:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn invalid_url_error_names_the_cause() {
    for (text, why) in [
        ("127.0.0.1:80", "expected protocol://host:port"),
        (
            "ftp://h:1",
            "unknown protocol `ftp`: expected baidu-std, rpcx, fb-rpc, grpc, grpc-web, connect, http, rest-rpc, net-rpc, \
             lines",
        ),
        ("grpcs+tls://h:1", "`grpcs+tls` requests TLS twice"),
        ("grpc+tls+tls://h:1", "`grpc+tls+tls` requests TLS twice"),
        ("rpcx+etcd+tls://h:1/base/S", "`+tls` must precede the registry: rpcx+tls+etcd://"),
        ("rpcx+list+dns://h:1", "`+list+dns`: a URL has at most one registry"),
        ("rpcx+lst://h:1", "`+lst` is neither `+tls` nor a registry: expected consul, dlist, dns, etcd, "),
        ("rpcx+://h:1", "`+` is neither `+tls` nor a registry"),
        ("rpcx://h", "expected host:port after ://"),
        ("rpcx://", "expected host:port after ://"),
        ("rpcx:///", "expected host:port after ://"),
        ("http://h:70000", "expected host:port after ://"),
        ("rpcx://unix:/run/x", "expected host:port after ://"),
        // Transport.
        (
            "rpcx://h:1?transport=udp",
            "invalid parameter `transport=udp`: expected tcp, unix, ws, kcp, quic, http-connect",
        ),
        (
            "grpc://h:1?transport=http-connect",
            "invalid parameter `transport=http-connect`: expected tcp, unix, ws, kcp, quic",
        ),
        ("rpcx://h:1?transport", "invalid parameter `transport`: expected tcp, "),
        ("rpcx://h:1?transport=ws&transport=ws", "the parameter `transport` occurs twice"),
        (
            "grpc://h:1?transport=unix",
            "needs the absolute path of a socket and no host: grpc:///run/app.sock",
        ),
        (
            "grpc://run/x?transport=unix",
            "needs the absolute path of a socket and no host: grpc:///run/app.sock",
        ),
        ("grpc:///?transport=unix", "needs the absolute path of a socket and no host: grpc:///run/app.sock"),
        ("rpcx:///run/x?transport=tcp", "`transport=tcp` needs host:port after ://"),
        ("rpcx:///run/x?transport=kcp", "a Unix socket carries neither KCP nor QUIC"),
        ("rpcx:///run/x?transport=quic", "a Unix socket carries neither KCP nor QUIC"),
        ("rpcx:///run/%x", "the socket path is not percent-encoded UTF-8: write `%` as %25"),
        ("rpcx:///run/%00", "the socket path is not percent-encoded UTF-8"),
        // Paths.
        ("http://h:1/prefix", "a path is not allowed here"),
        ("grpc://h:1/a.B/C", "a path is not allowed here"),
        ("rpcx://h:1/a?transport=kcp", "a path is not allowed here"),
        ("http://h/rpc?dialect=json-rpc", "a path is not allowed here"),
        ("rpcx://h:1/a b?transport=ws", "must not contain blanks or non-ASCII bytes"),
        ("rpcx://h:1?transport=ws&http_path=/a%20b", "must not contain blanks or non-ASCII bytes"),
        ("rpcx://h:1?transport=ws&http_path=a", "the path of an HTTP request must start with `/`"),
        ("rpcx://h:1?http_path=/a", "`http_path` needs transport=ws or transport=http-connect"),
        ("rpcx:///run/x?http_path=/a", "`http_path` needs transport=ws or transport=http-connect"),
        (
            "rpcx://h:1/a?transport=ws&http_path=/a",
            "the path is given twice: after the host and as `http_path`",
        ),
        ("rpcx://h:1#part", "a fragment (`#`) is not allowed here"),
        ("rpcx:///run/x#y", "a fragment (`#`) is not allowed here"),
        // Parameters of protocols.
        (
            "rpcx://h:1?timeout=1&x",
            "the parameter `timeout` is unknown: rpcx:// has transport=tcp|unix|ws|kcp|quic|http-connect, http_path=…",
        ),
        ("rpcx://h:1?version=1", "the parameter `version` is unknown: rpcx:// has transport="),
        ("grpc://h:1?codec=json", "the parameter `codec` is unknown: grpc:// has transport="),
        ("rest-rpc://h:1?version=7", "invalid parameter `version=7`: expected 0.21, 0.20, "),
        ("rest-rpc://h:1?version=v0.20", "invalid parameter `version=v0.20`: expected 0.21, 0.20, "),
        ("rest-rpc://h:1?version=0.20&byte_order=big", "`byte_order=big` needs `version=0.21`"),
        ("rest-rpc://h:1?byte_order=middle", "invalid parameter `byte_order=middle`: expected little, big"),
        (
            "fb-rpc://h:1?version=2",
            "invalid parameter `version=2`: expected frpc, frpc-two-dots, brpc, brpc-two-dots",
        ),
        ("net-rpc://h:1?codec=gob&codec=json", "the parameter `codec` occurs twice"),
        (
            "net-rpc://h:1?codec=xml",
            "invalid parameter `codec=xml`: expected gob, json, msgpack, protobuf, gencode, ",
        ),
        ("http://h?dialect=xml-rpc", "invalid parameter `dialect=xml-rpc`: expected path, json-rpc"),
        ("grpc://h:1?http_version=2", "`http_version` belongs to grpc-web:// and connect://, not to grpc://"),
        ("grpc-web://h:1?http_method=get", "`http_method` belongs to connect://, not to grpc-web://"),
        ("connect://h:1?http_version=3", "invalid parameter `http_version=3`: expected 1.1, 2"),
        ("connect://h:1?http_method=put", "invalid parameter `http_method=put`: expected post, get"),
    ] {
        assert_refused(parse(text), text, why);
    }
}

#[test]
fn unknown_registry_word_is_rejected() {
    for (text, why) in [
        ("rpcx+kcp://h:1", "`+kcp` is neither `+tls` nor a registry"),
        ("grpc+http://h:1", "`+http` is neither `+tls` nor a registry"),
        ("net-rpc+http+json://h:1", "`+http+json`: a URL has at most one registry"),
    ] {
        assert_refused(parse(text), text, why);
        assert_refused(Url::parse_service(text, &known_protocols()), text, why);
    }
}

#[test]
fn url_with_a_password_is_rejected_without_repeating_it() {
    for text in [
        "rpcx://me:hunter2@h:1",
        "https://me:hunter2@h/x",
        "nothing://me:hunter2@h:1",
        "https://h/?token=hunter2",
    ] {
        let error = parse(text).unwrap_err();
        assert!(!error.message().contains("ter2"), "{error}");
    }
    assert_refused(parse("rpcx://me@h:1"), "", "a user or password is not allowed here");
}

#[test]
fn remaining_parameters_belong_to_the_registry() {
    for (text, registry, rest, query) in [
        ("rpcx+etcd://h:1/base/S", "etcd", "h:1/base/S", ""),
        ("rpcx+tls+etcd://h:1/base/S?user=me&transport=ws", "etcd", "h:1/base/S?user=me", "transport=ws"),
        ("rpcx+consul://h:1/S?tls&token=a%20b", "consul", "h:1/S?tls&token=a%20b", ""),
        (
            "net-rpc+nacos://h:1/S?codec=json&group=a&transport=kcp",
            "nacos",
            "h:1/S?group=a",
            "codec=json&transport=kcp",
        ),
        // rpcx has no versions.
        ("rpcx+remotefile://h/list?version=2", "remotefile", "h/list?version=2", ""),
        (
            "rpcx+list://a:1 weight=5&group=a,b:2?transport=ws",
            "list",
            "a:1 weight=5&group=a,b:2",
            "transport=ws",
        ),
        ("lines+list://a:1?end=crlf", "list", "a:1", "end=crlf"),
    ] {
        let found = DiscoveryUrl::parse(text, &known_protocols()).unwrap().expect("it names a registry");
        assert_eq!((&*found.registry, &*found.rest, &*found.query), (registry, rest, query), "{text}");
        assert!(found.url().is_ok(), "{text}");
        if found.scheme.protocol != Protocol::Other(&LINES) {
            assert_eq!(registry_url(text), format!("{registry}://{rest}"), "{text}");
        }
    }
    for text in ["rpcx://h:1?transport=ws", "etcd://h:1/base?user=me", "h:1", "etcd+x://h:1"] {
        assert_eq!(registry_url(text), text);
    }
}

#[test]
fn url_and_registry_entry_select_the_address_of_an_instance() {
    let rpcx = "rpcx+etcd://h:1/base/S";
    assert_eq!(instance_url(rpcx, "tcp@a:1").address.to_string(), "a:1");
    assert_eq!(instance_url(rpcx, "unix@/run/x").address.to_string(), "unix:/run/x");
    assert_eq!(instance_url(&format!("{rpcx}?transport=kcp"), "tcp@a:1").address.to_string(), "kcp://a:1");
    let websocket = instance_url(&format!("{rpcx}?transport=ws"), "tcp@a:1").websocket;
    assert_eq!(websocket.as_deref(), Some("/_rpcx_"));
    let path = format!("{rpcx}?http_path=/calls");
    assert_eq!(instance_url(&path, "tcp@a:1").websocket, None);
    assert_eq!(instance_url(&path, "ws@a:1").websocket.as_deref(), Some("/calls"));
    assert_eq!(instance_url(&path, "http@a:1").connect.as_deref(), Some("/calls"));
    assert_eq!(instance_url(rpcx, "http@a:1").connect.as_deref(), Some("/_rpcx_"));

    // A network other than TCP replaces the transport of the URL.
    for (transport, instance, websocket, connect) in [
        ("ws", "http@a:1", None, Some("/_rpcx_")),
        ("ws", "wss@a:1", Some("/_rpcx_"), None),
        ("ws", "unix@/run/x", None, None),
        ("ws", "kcp@a:1", None, None),
        ("http-connect", "ws@a:1", Some("/_rpcx_"), None),
        ("http-connect", "quic@a:1", None, None),
        ("http-connect", "tcp@a:1", None, Some("/_rpcx_")),
    ] {
        let url = instance_url(&format!("{rpcx}?transport={transport}"), instance);
        let paths = (url.websocket.as_deref(), url.connect.as_deref());
        assert_eq!(paths, (websocket, connect), "{transport} {instance}");
    }
    for text in
        ["rpcx:///run/x?transport=ws", "rpcx://h:1?transport=http-connect", "grpc://h:1?transport=quic"]
    {
        let url = parse(text).unwrap();
        assert_eq!(url.at(&url.instance()), Ok(url.clone()), "{text}");
    }

    // QUIC includes TLS, and an instance without it keeps that of the scheme.
    let quic = "rpcx+tls+etcd://h:1/base/S?transport=quic";
    assert!(!instance_url(quic, "tcp@a:1").tls && !instance_url(rpcx, "quic@a:1").tls);
    assert!(instance_url(quic, "ws@a:1").tls && instance_url(rpcx, "wss@a:1").tls);
    assert!(!instance_url(rpcx, "ws@a:1").tls);

    for (query, why) in [
        ("transport=unix", "`transport=unix` is not allowed with a registry"),
        ("transport=ws&transport=kcp", "the parameter `transport` occurs twice"),
        ("http_path=a", "the path of an HTTP request must start with `/`"),
    ] {
        let text = format!("{rpcx}?{query}");
        assert_refused(DiscoveryUrl::parse(&text, &known_protocols()).unwrap().unwrap().url(), &text, why);
    }
}

#[test]
fn service_url_accepts_parameters_and_any_name() {
    for text in ["rpcx", "rpcx://arith", "rpcx://h:1", "rpcx://arith?transport=ws"] {
        assert!(Url::parse_service(text, &known_protocols()).is_ok(), "{text}");
    }
    for (text, why) in [
        ("ftp://arith", "unknown protocol `ftp`: expected"),
        ("rpcx://arith?trnsport=ws", "the parameter `trnsport` is unknown"),
        ("rpcx+etcd://arith", "`+etcd` "),
    ] {
        assert_refused(Url::parse_service(text, &known_protocols()), text, why);
    }
}

#[track_caller]
fn assert_refused(outcome: Result<Url, Status>, text: &str, why: &str) {
    let error = outcome.expect_err(text);
    assert!(error.message().contains(why), "{error}");
}

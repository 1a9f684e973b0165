//! Which protocol a connection speaks, told from its first bytes.

use crate::{baidu_std, fb_rpc, grpc, http1, net_rpc, rest_rpc, rpcx};

/// A protocol a server can speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// brpc's own, the default of its channels.
    BaiduStd,
    /// rpcx's own.
    Rpcx,
    /// brpc's FlatBuffers protocol.
    FbRpc,
    /// gRPC over HTTP/2.
    Grpc,
    /// HTTP/1.x: JSON and protobuf by `POST /Service/Method`, rpcx's gateway, JSON-RPC 2.0.
    Http,
    /// rest_rpc's own. By their first bytes v0.12 to v0.20 and v0.21 are told; for other generations a listener is
    /// set.
    RestRpc,
    /// Go's `net/rpc`: gob, JSON-RPC 1.0, and the codecs of the rpcx of 2016.
    NetRpc,
}

impl Protocol {
    /// Every protocol, in the order in which they are tried.
    pub const ALL: [Self; 7] =
        [Self::BaiduStd, Self::Rpcx, Self::FbRpc, Self::Grpc, Self::Http, Self::RestRpc, Self::NetRpc];

    /// The name users know: `baidu_std`, `rpcx`, `fb_rpc`, `grpc`, `http`, `rest_rpc`, `net_rpc`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BaiduStd => "baidu_std",
            Self::Rpcx => "rpcx",
            Self::FbRpc => "fb_rpc",
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::RestRpc => "rest_rpc",
            Self::NetRpc => "net_rpc",
        }
    }

    fn recognise(self, start: &[u8]) -> Guess {
        match self {
            Self::BaiduStd => baidu_std::recognise(start),
            Self::Rpcx => rpcx::recognise(start),
            Self::FbRpc => fb_rpc::recognise(start),
            Self::Grpc => grpc::recognise(start),
            Self::Http => http1::recognise(start),
            Self::RestRpc => rest_rpc::recognise(start),
            Self::NetRpc => net_rpc::recognise(start),
        }
    }
}

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// It is this one.
    Is(Protocol),
    /// It may still be one of several.
    NeedMore,
    /// It is none of those allowed.
    Unknown,
}

/// Tells the protocol of a connection that begins with `start`, among those `allowed`.
pub fn sniff(start: &[u8], allowed: &[Protocol]) -> Guess {
    let mut undecided = start.is_empty();
    for protocol in allowed {
        match protocol.recognise(start) {
            Guess::Unknown => {}
            Guess::NeedMore => undecided = true,
            is @ Guess::Is(_) => return is,
        }
    }
    if undecided { Guess::NeedMore } else { Guess::Unknown }
}

/// Recognises a protocol by the fixed bytes it begins with.
pub(crate) fn by_magic(protocol: Protocol, magic: &[u8], start: &[u8]) -> Guess {
    let n = start.len().min(magic.len());
    match start[..n] == magic[..n] {
        false => Guess::Unknown,
        true if n == magic.len() => Guess::Is(protocol),
        true => Guess::NeedMore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(start: &[u8]) -> Guess {
        sniff(start, &Protocol::ALL)
    }

    #[test]
    fn each_protocol_is_told_by_its_first_bytes() {
        assert_eq!(all(b"PRPC\0\0\0\0"), Guess::Is(Protocol::BaiduStd));
        assert_eq!(all(&[8, 0, 0, 0x30]), Guess::Is(Protocol::Rpcx));
        assert_eq!(all(b"FRPC\0\0\0\x34"), Guess::Is(Protocol::FbRpc));
        assert_eq!(all(b"BRPC\0\0\0\x34"), Guess::Is(Protocol::FbRpc));
        assert_eq!(all(b"POST /EchoService/Echo HTTP/1.1\r\n"), Guess::Is(Protocol::Http));
        assert_eq!(all(b"GET / HTTP/1.1\r\n"), Guess::Is(Protocol::Http));
        assert_eq!(all(&[0x2e, 0x7f, 3, 1, 1, 7]), Guess::Is(Protocol::NetRpc));
        assert_eq!(all(br#"{"method":"Arith.Mul""#), Guess::Is(Protocol::NetRpc));
        assert_eq!(all(b"\x82\xa3Seq"), Guess::Is(Protocol::NetRpc));
    }

    #[test]
    fn a_prefix_of_several_waits_and_junk_does_not() {
        assert_eq!(all(b""), Guess::NeedMore);
        assert_eq!(all(b"P"), Guess::NeedMore);
        assert_eq!(all(b"PR"), Guess::NeedMore);
        assert_eq!(all(b"PRPX"), Guess::Unknown);
        assert_eq!(all(&[0, 1, 2, 3]), Guess::Unknown);
    }

    #[test]
    fn what_is_not_allowed_is_unknown() {
        assert_eq!(sniff(b"PRPC", &[Protocol::Http]), Guess::Unknown);
        assert_eq!(sniff(b"PO", &[Protocol::BaiduStd]), Guess::Unknown);
    }
}

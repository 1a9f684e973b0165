//! The protocols that the framework has, by name.

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
}

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// It is this one.
    Is(Protocol),
    /// It may still be one of several.
    NeedMore,
    /// It is none of those allowed.
    Unknown,
}

/// Recognises a protocol by the fixed bytes it begins with.
pub fn by_magic(protocol: Protocol, magic: &[u8], start: &[u8]) -> Detected {
    let n = start.len().min(magic.len());
    match start[..n] == magic[..n] {
        false => Detected::Unknown,
        true if n == magic.len() => Detected::Is(protocol),
        true => Detected::NeedMore,
    }
}

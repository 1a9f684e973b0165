//! The available protocols: the built-in ones by name, and those of other crates by their descriptors.

use polyrpc_core::Descriptor;

use crate::{baidu_std, fb_rpc, grpc, http, net_rpc, rest_rpc, rpcx};

/// Protocol of a server or a client.
///
/// Two protocols are equal if their names are. Their properties are in the [descriptor](Self::descriptor).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// brpc's default protocol.
    BaiduStd,
    /// rpcx's own protocol.
    Rpcx,
    /// brpc's FlatBuffers protocol.
    FbRpc,
    /// gRPC over HTTP/2.
    Grpc,
    /// HTTP/1.x: JSON and protobuf by `POST /Service/Method`, rpcx's gateway, JSON-RPC 2.0.
    Http,
    /// rest_rpc's own protocol. v0.12 to v0.20 and v0.21 are detected from the first bytes; other versions require a
    /// setting of the listener.
    RestRpc,
    /// Go's `net/rpc`: gob, JSON-RPC 1.0, and the codecs of the rpcx of 2016.
    NetRpc,
    /// Protocol of another crate.
    Other(&'static Descriptor),
}

impl Protocol {
    /// Every built-in protocol, in the order of detection.
    pub const ALL: [Self; 7] =
        [Self::BaiduStd, Self::Rpcx, Self::FbRpc, Self::Grpc, Self::Http, Self::RestRpc, Self::NetRpc];

    /// Returns its descriptor.
    pub fn descriptor(self) -> &'static Descriptor {
        match self {
            Self::BaiduStd => &baidu_std::DESCRIPTOR,
            Self::Rpcx => &rpcx::DESCRIPTOR,
            Self::FbRpc => &fb_rpc::DESCRIPTOR,
            Self::Grpc => &grpc::DESCRIPTOR,
            Self::Http => &http::DESCRIPTOR,
            Self::RestRpc => &rest_rpc::DESCRIPTOR,
            Self::NetRpc => &net_rpc::DESCRIPTOR,
            Self::Other(descriptor) => descriptor,
        }
    }

    /// Returns its name: `baidu_std`, `rpcx`, `fb_rpc`, `grpc`, `http`, `rest_rpc`, `net_rpc`.
    pub fn as_str(self) -> &'static str {
        self.descriptor().name
    }
}

/// Returns the built-in protocol with this descriptor, otherwise [`Other`](Protocol::Other).
impl From<&'static Descriptor> for Protocol {
    fn from(descriptor: &'static Descriptor) -> Self {
        let built_in = Self::ALL.into_iter().find(|protocol| protocol.descriptor() == descriptor);
        built_in.unwrap_or(Self::Other(descriptor))
    }
}

#[cfg(test)]
mod tests {
    use polyrpc_core::Detection;

    use super::*;

    static LINES: Descriptor = Descriptor::new("lines", |_| Detection::Unknown);
    static SAME_LINES: Descriptor = Descriptor::new("lines", |_| Detection::NeedMore);

    #[test]
    fn protocol_names_and_schemes_are_unique() {
        let mut names: Vec<_> = Protocol::ALL.map(Protocol::as_str).to_vec();
        let schemes = Protocol::ALL.into_iter().flat_map(|protocol| protocol.descriptor().schemes);
        let mut schemes: Vec<_> =
            schemes.flat_map(|scheme| [Some(scheme.name), scheme.secure]).flatten().collect();
        for list in [&mut names, &mut schemes] {
            let count = list.len();
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), count, "{list:?}");
        }
    }

    #[test]
    fn url_parameters_have_valid_names_that_no_transport_uses() {
        for protocol in Protocol::ALL {
            let descriptor = protocol.descriptor();
            for (index, parameter) in descriptor.parameters.iter().enumerate() {
                let name = parameter.name;
                assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
                assert!(!["transport", "http_path"].contains(&name), "{name}");
                assert!(descriptor.parameters[..index].iter().all(|other| other.name != name), "{name}");
                let known = |scheme: &&str| descriptor.schemes.iter().any(|known| known.name == *scheme);
                assert!(parameter.schemes.iter().all(known), "{name}");
            }
        }
    }

    #[test]
    fn custom_protocols_are_equal_by_name() {
        assert_eq!(Protocol::from(&LINES), Protocol::Other(&SAME_LINES));
        assert_ne!(Protocol::from(&LINES), Protocol::Http);
        assert_eq!(Protocol::from(Protocol::Grpc.descriptor()), Protocol::Grpc);
    }
}

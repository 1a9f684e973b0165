//! Target of a client, as named in telemetry.

use super::url::Url;
use crate::call::Target;
use crate::discovery;
use crate::transport::Address;

impl Target {
    /// Target of a single server's URL.
    pub(super) fn from_url(url: &Url) -> Self {
        match &url.address {
            Address::Unix(path) => Self { address: path.display().to_string(), port: None },
            Address::Tcp(authority) | Address::Kcp(authority) | Address::Quic(authority) => {
                let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
                Self { address: url.host().to_owned(), port }
            }
        }
    }

    /// Target of a discovery URL.
    pub(super) fn found_by(url: &str) -> Self {
        Self { address: discovery::redacted(url), port: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_parsed_from_the_url() {
        for (url, address, port) in [
            ("grpc://example.com:50051", "example.com", Some(50051)),
            ("rpcx://[::1]:8972", "::1", Some(8972)),
            ("rpcx:///run/echo.sock", "/run/echo.sock", None),
        ] {
            let target = Target::from_url(&Url::parse(url, &polyrpc_wire::Protocol::ALL).unwrap());
            assert_eq!((&*target.address, target.port), (address, port), "{url}");
        }
        let target = Target::found_by("rpcx+etcd://me:secret@etcd:2379/rpcx/Arith");
        assert!(
            target.address.starts_with("rpcx+etcd://") && target.address.contains("etcd:2379/rpcx/Arith")
        );
        assert!(!target.address.contains("secret"), "{}", target.address);
    }
}

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use polyrpc_core::Status;

use crate::discovery::{Instance, Network};
use crate::transport::{Address, outgoing_v4, outgoing_v6};

/// Address that is advertised to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AdvertisedAddress {
    /// The address of the listener.
    Bound,
    /// This host, with the port of the listener.
    Host(String),
    /// This instance.
    At(Instance),
}

impl AdvertisedAddress {
    pub(super) fn read(text: Option<&str>) -> Result<Self, Status> {
        let Some(text) = text else { return Ok(Self::Bound) };
        // An IPv6 address alone has colons too.
        if text.parse::<Ipv6Addr>().is_ok() {
            return Ok(Self::Host(format!("[{text}]")));
        }
        let is_whole = text.contains('@') || (text.contains(':') && !text.ends_with(']'));
        match is_whole {
            true => text.parse().map(Self::At),
            // It must be a valid host when combined with any port.
            false if format!("{text}:1").parse::<Instance>().is_ok() => Ok(Self::Host(text.to_owned())),
            false => Err(Status::invalid_argument(format!(
                "`{text}` is not an address to call: expected host, host:port or network@host:port"
            ))),
        }
    }

    /// Returns the instance to publish, for a server that listens on this address.
    pub(super) fn instance(&self, bound: &Address, network: Option<Network>) -> Instance {
        let mut instance = match self {
            Self::At(instance) => instance.clone(),
            Self::Host(host) => match port(bound) {
                Some(port) => instance_at(bound, format!("{host}:{port}")),
                // A Unix socket has no port to combine with a host.
                None => listen_instance(bound),
            },
            Self::Bound => listen_instance(bound),
        };
        instance.network = network.unwrap_or(instance.network);
        instance
    }
}

fn port(bound: &Address) -> Option<&str> {
    bound.host_and_port()?.rsplit_once(':').map(|(_, port)| port)
}

fn listen_instance(bound: &Address) -> Instance {
    let address = match bound {
        Address::Unix(path) => path.display().to_string(),
        Address::Tcp(address) | Address::Kcp(address) | Address::Quic(address) => reachable_address(address),
    };
    instance_at(bound, address)
}

fn instance_at(bound: &Address, address: String) -> Instance {
    let network = match bound {
        Address::Tcp(_) => Network::Tcp,
        Address::Unix(_) => Network::Unix,
        Address::Kcp(_) => Network::Kcp,
        Address::Quic(_) => Network::Quic,
    };
    Instance { network, ..Instance::tcp(address) }
}

/// Returns an address at which others can reach this listener.
fn reachable_address(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(bound) if bound.ip().is_unspecified() => {
            SocketAddr::new(local_address(bound.ip()), bound.port()).to_string()
        }
        _ => address.to_owned(),
    }
}

/// Returns the address of this machine, as others see it. A listener on all IPv6 addresses also accepts IPv4, on the
/// systems that we know.
fn local_address(any: IpAddr) -> IpAddr {
    match any {
        IpAddr::V4(_) => outgoing_v4().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        IpAddr::V6(_) => outgoing_v6().or_else(|_| outgoing_v4()).unwrap_or(IpAddr::V6(Ipv6Addr::LOCALHOST)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advertised_instance(text: Option<&str>, bound: &str) -> String {
        AdvertisedAddress::read(text).unwrap().instance(&bound.parse().unwrap(), None).to_string()
    }

    #[test]
    fn advertised_address_is_a_host_or_a_full_address() {
        for (text, bound, expected) in [
            (None, "127.0.0.1:8000", "tcp@127.0.0.1:8000"),
            (None, "kcp://10.0.0.1:1", "kcp@10.0.0.1:1"),
            (None, "unix:/run/x", "unix@/run/x"),
            (Some("example.org"), "0.0.0.0:8000", "tcp@example.org:8000"),
            (Some("10.0.0.7"), "quic://[::]:1", "quic@10.0.0.7:1"),
            (Some("fd00::7"), "[::]:1", "tcp@[fd00::7]:1"),
            (Some("[fd00::7]"), "[::]:1", "tcp@[fd00::7]:1"),
            (Some("example.org:80"), "127.0.0.1:8000", "tcp@example.org:80"),
            (Some("ws@example.org:80"), "127.0.0.1:8000", "ws@example.org:80"),
            (Some("example.org"), "unix:/run/x", "unix@/run/x"),
        ] {
            assert_eq!(advertised_instance(text, bound), expected, "{text:?} {bound}");
        }
        for wrong in
            ["", "h:x", "h:0", "ftp@h:1", ":1", "not an address", "a b:1", "h ", "[::x]", "a/b", "[h]:1"]
        {
            assert!(AdvertisedAddress::read(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unspecified_address_is_never_advertised() {
        for any in ["0.0.0.0:8000", "[::]:8000"] {
            let instance = advertised_instance(None, any);
            let address: SocketAddr = instance.strip_prefix("tcp@").unwrap().parse().unwrap();
            assert!(!address.ip().is_unspecified());
            assert_eq!(address.port(), 8000);
        }
    }

    #[test]
    fn network_of_the_advertisement_can_be_set() {
        let instance = AdvertisedAddress::Bound.instance(&"10.0.0.1:1".parse().unwrap(), Some(Network::Ws));
        assert_eq!(instance.to_string(), "ws@10.0.0.1:1");
    }
}

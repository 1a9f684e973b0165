use std::collections::HashSet;
use std::net::IpAddr;

use polyrpc_core::Status;
use polyrpc_core::digits::parse_decimal;

use crate::Error;
use crate::call::{Connection, Peer};
use crate::layer::hook::Hook;

/// Allow or deny list of peer addresses: rpcx's whitelist and blacklist.
///
/// A rejected connection is closed after it was accepted. A peer on a Unix socket has no address: it is not on any
/// list, so an allow list rejects it, as in rpcx. Calls from this process are not checked.
///
/// ```
/// use polyrpc::Server;
/// use polyrpc::layers::IpList;
///
/// # fn main() -> polyrpc::Result<()> {
/// let server = Server::new()
///     .hook(IpList::allow(["10.0.0.0/8", "fd00::/8", "127.0.0.1"])?)
///     .hook(IpList::deny(["10.6.6.6"])?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct IpList {
    /// Whether this is an allow list.
    listed_may: bool,
    /// Addresses, all as IPv6: an IPv4 address is mapped.
    addresses: HashSet<u128>,
    networks: Vec<Network>,
}

impl IpList {
    /// Allows only these peers: addresses, and networks as `192.0.2.0/24`.
    ///
    /// # Errors
    ///
    /// If one of them is neither.
    pub fn allow<T: AsRef<str>>(networks: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        Self::new(true, networks)
    }

    /// Allows all peers except these: addresses, and networks as `192.0.2.0/24`.
    ///
    /// # Errors
    ///
    /// If one of them is neither.
    pub fn deny<T: AsRef<str>>(networks: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        Self::new(false, networks)
    }

    fn new<T: AsRef<str>>(listed_may: bool, networks: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        let mut list = Self { listed_may, addresses: HashSet::new(), networks: Vec::new() };
        for text in networks {
            let text = text.as_ref();
            let network = Network::parse(text).ok_or_else(|| unknown_network(text))?;
            match network.mask {
                u128::MAX => drop(list.addresses.insert(network.prefix)),
                _ => list.networks.push(network),
            }
        }
        Ok(list)
    }

    /// Returns whether a peer with this address may connect.
    pub fn allows(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        let listed =
            self.addresses.contains(&bits) || self.networks.iter().any(|network| network.holds(bits));
        listed == self.listed_may
    }

    fn admits_peer(&self, peer: &Peer) -> bool {
        match (peer, peer.address()) {
            (_, Some(address)) => self.allows(address.ip()),
            (Peer::InProcess, None) => true,
            (_, None) => !self.listed_may,
        }
    }
}

impl Hook for IpList {
    fn on_accept(&self, connection: &Connection) -> Result<(), Status> {
        match self.admits_peer(&connection.peer) {
            true => Ok(()),
            false => Err(Status::permission_denied("the address is not allowed to connect")),
        }
    }
}

/// A network: addresses with a common prefix.
#[derive(Debug, Clone, Copy)]
struct Network {
    prefix: u128,
    mask: u128,
}

impl Network {
    /// Bits after the prefix are ignored, as in Go's `net.ParseCIDR`.
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(length) => parse_decimal(length)?,
            None => width,
        };
        let behind = u32::checked_sub(width, length)?;
        let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
        Some(Self { prefix: bits(address) & mask, mask })
    }

    fn holds(&self, address: u128) -> bool {
        address & self.mask == self.prefix
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cold]
fn unknown_network(text: &str) -> Error {
    Status::invalid_argument(format!("`{text}` is neither an address nor a network")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(list: &IpList, addresses: &[&str]) -> Vec<bool> {
        addresses.iter().map(|address| list.allows(address.parse().unwrap())).collect()
    }

    #[test]
    fn list_contains_addresses_and_networks_of_both_families() {
        let networks = ["10.1.2.3/8", "192.0.2.7", "2001:db8::/32", "::1"];
        let here = ["10.255.0.1", "192.0.2.7", "2001:db8:ffff::1", "::1", "::ffff:10.0.0.1"];
        let elsewhere = ["11.0.0.1", "192.0.2.8", "2001:db9::", "::2", "::10.0.0.1"];
        let (allow, deny) = (IpList::allow(networks).unwrap(), IpList::deny(networks).unwrap());
        assert_eq!((verdicts(&allow, &here), verdicts(&allow, &elsewhere)), (vec![true; 5], vec![false; 5]));
        assert_eq!((verdicts(&deny, &here), verdicts(&deny, &elsewhere)), (vec![false; 5], vec![true; 5]));
    }

    #[test]
    fn network_can_be_everything_or_a_single_address() {
        let all = IpList::allow(["0.0.0.0/0"]).unwrap();
        assert_eq!(verdicts(&all, &["1.2.3.4", "255.255.255.255", "::1"]), [true, true, false]);
        let all = IpList::allow(["::/0"]).unwrap();
        assert_eq!(verdicts(&all, &["1.2.3.4", "::1"]), [true, true]);
        let one = IpList::deny(["1.2.3.4/32", "::5/128"]).unwrap();
        assert_eq!(verdicts(&one, &["1.2.3.4", "1.2.3.5", "::5", "::4"]), [false, true, false, true]);
        let none = IpList::allow(<[&str; 0]>::default()).unwrap();
        assert_eq!(verdicts(&none, &["1.2.3.4"]), [false]);
    }

    #[test]
    fn invalid_network_is_an_error() {
        for text in [
            "",
            "localhost",
            "1.2.3",
            "1.2.3.4/33",
            "::/129",
            "1.2.3.4/",
            "1.2.3.4/+8",
            "1.2.3.4/-1",
            "1.2.3.4/8/8",
            "/8",
        ] {
            let error = IpList::deny([text]).unwrap_err();
            assert_eq!(error.message(), format!("`{text}` is neither an address nor a network"));
        }
    }

    #[test]
    fn peer_without_an_address_matches_no_list() {
        let (allow, deny) = (IpList::allow(["::/0"]).unwrap(), IpList::deny(["::/0"]).unwrap());
        assert!(!allow.admits_peer(&Peer::Unix) && deny.admits_peer(&Peer::Unix));
        assert!(allow.admits_peer(&Peer::InProcess) && deny.admits_peer(&Peer::InProcess));
    }
}

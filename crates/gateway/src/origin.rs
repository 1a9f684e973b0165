//! Where calls come from, behind proxies.

use std::net::{IpAddr, SocketAddr};

use polyrpc::Metadata;
use polyrpc::fallback::RawRequest;
use polyrpc::layers::IpList;

/// The proxies that a listener trusts to report the origin of a call.
#[derive(Debug, Default)]
pub(crate) struct Proxies(Option<IpList>);

impl Proxies {
    /// # Errors
    ///
    /// If one of them is neither an address nor a network.
    pub(crate) fn new(networks: &[String]) -> Result<Self, String> {
        if networks.is_empty() {
            return Ok(Self::default());
        }
        IpList::allow(networks).map(|list| Self(Some(list))).map_err(|error| error.message().to_owned())
    }

    /// Whether a call comes from a proxy.
    pub(crate) fn has_sender_of(&self, call: &RawRequest) -> bool {
        call.context().peer().address().is_some_and(|address| self.include(address.ip()))
    }

    fn include(&self, address: IpAddr) -> bool {
        self.0.as_ref().is_some_and(|list| list.allows(address))
    }

    /// Returns the address of the caller: the nearest hop that is not a trusted proxy.
    pub(crate) fn origin(&self, call: &RawRequest) -> Option<IpAddr> {
        let peer = call.context().peer().address()?.ip();
        Some(self.origin_of(peer, call.metadata()))
    }

    fn origin_of(&self, peer: IpAddr, metadata: &Metadata) -> IpAddr {
        let mut origin = peer;
        for hop in forwarded_hops(metadata).rev() {
            if !self.include(origin) {
                break;
            }
            // Hops before an entry that is not an address cannot be trusted either.
            let Some(address) = address(hop) else { break };
            origin = address;
        }
        origin
    }
}

/// The hops of a call, the first one first.
fn forwarded_hops(metadata: &Metadata) -> impl DoubleEndedIterator<Item = &str> {
    let fields: Vec<_> = metadata
        .iter()
        .filter(|(key, _)| key.eq_ignore_ascii_case(FORWARDED_FOR))
        .filter_map(|(_, value)| std::str::from_utf8(value).ok())
        .flat_map(|field| field.split(','))
        .collect();
    fields.into_iter()
}

/// An address, also with a port or in brackets.
fn address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let socket = || hop.parse().ok().map(|socket: SocketAddr| socket.ip());
    let bare = hop.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().or_else(socket)
}

/// Whether a metadata field reports the origin of a call.
pub(crate) fn is_forwarded(key: &str) -> bool {
    let families = ["x-forwarded-", "forwarded", "x-real-ip"];
    families.iter().any(|family| key.get(..family.len()).is_some_and(|own| own.eq_ignore_ascii_case(family)))
}

/// Adds the peer to the hops of a call.
pub(crate) fn append_peer(metadata: &mut Metadata, call: &RawRequest) {
    let Some(peer) = call.context().peer().address() else { return };
    let peer = peer.ip().to_canonical().to_string();
    let known: Vec<_> = forwarded_hops(metadata).map(|hop| hop.trim().to_owned()).collect();
    let hops: Vec<_> = known.into_iter().chain([peer]).collect();
    metadata.insert(FORWARDED_FOR, hops.join(", "));
}

pub(crate) const FORWARDED_FOR: &str = "x-forwarded-for";

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(peer: &str, fields: &[&'static str]) -> String {
        let proxies = Proxies::new(&["10.0.0.0/8".to_owned(), "::1".to_owned()]).unwrap();
        let mut metadata = Metadata::new();
        fields.iter().for_each(|field| metadata.append(FORWARDED_FOR, *field));
        proxies.origin_of(peer.parse().unwrap(), &metadata).to_string()
    }

    #[test]
    fn only_trusted_proxies_report_the_origin() {
        for (peer, fields, wanted) in [
            ("10.0.0.1", &["192.0.2.7"][..], "192.0.2.7"),
            ("10.0.0.1", &["198.51.100.1, 192.0.2.7, 10.1.1.1"], "192.0.2.7"),
            ("10.0.0.1", &["198.51.100.1", "192.0.2.7"], "192.0.2.7"),
            ("192.0.2.7", &["198.51.100.1"], "192.0.2.7"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["nonsense, 10.1.1.1"], "10.1.1.1"),
            ("10.0.0.1", &["unknown"], "10.0.0.1"),
            ("::1", &["[2001:db8::1]:443"], "2001:db8::1"),
            ("::1", &["192.0.2.7:51000"], "192.0.2.7"),
            ("10.0.0.1", &["10.2.2.2, 10.3.3.3"], "10.2.2.2"),
        ] {
            assert_eq!(origin(peer, fields), wanted, "{peer} {fields:?}");
        }
        assert!(Proxies::new(&["10.0.0.0/40".to_owned()]).is_err());
    }

    #[test]
    fn fields_about_the_origin_are_known() {
        for key in ["x-forwarded-for", "X-Forwarded-Proto", "forwarded", "X-Real-IP"] {
            assert!(is_forwarded(key), "{key}");
        }
        assert!(!is_forwarded("x-forward") && !is_forwarded("for"));
    }
}

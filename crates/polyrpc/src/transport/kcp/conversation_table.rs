use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::conversation::Conversation;

/// The conversations of a socket, by the address of the peer.
///
/// Those with an unvalidated address are in a separate list, the oldest first: a flood of forged addresses evicts only
/// its own entries, not those of validated peers.
#[derive(Debug, Default)]
pub(super) struct ConversationTable {
    by_peer: HashMap<SocketAddr, Member>,
    /// Unvalidated peers, by the order of their start.
    unvalidated: BTreeMap<u64, SocketAddr>,
    /// The number of unvalidated peers of each network.
    networks: HashMap<Network, usize>,
    begun: u64,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) conv: u32,
    pub(super) conversation: Arc<Conversation>,
    /// Its place in the list, unless the address is validated.
    unvalidated: Option<u64>,
}

impl Member {
    pub(super) fn is_validated(&self) -> bool {
        self.unvalidated.is_none()
    }
}

impl ConversationTable {
    pub(super) fn get(&self, peer: &SocketAddr) -> Option<&Member> {
        self.by_peer.get(peer)
    }

    pub(super) fn len(&self) -> usize {
        self.by_peer.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_peer.is_empty()
    }

    /// Adds the conversation of a peer that has none.
    pub(super) fn insert(&mut self, conv: u32, conversation: Arc<Conversation>, is_validated: bool) {
        let peer = conversation.peer();
        let mut member = Member { conv, conversation, unvalidated: None };
        if !is_validated {
            self.begun += 1;
            self.unvalidated.insert(self.begun, peer);
            *self.networks.entry(Network::of(peer.ip())).or_default() += 1;
            member.unvalidated = Some(self.begun);
        }
        self.by_peer.insert(peer, member);
    }

    /// Marks the peer's address as validated.
    pub(super) fn validated(&mut self, peer: SocketAddr) {
        let place = self.by_peer.get_mut(&peer).and_then(|member| member.unvalidated.take());
        self.remove_unvalidated(peer, place);
    }

    pub(super) fn remove(&mut self, peer: SocketAddr) -> Option<Arc<Conversation>> {
        let member = self.by_peer.remove(&peer)?;
        self.remove_unvalidated(peer, member.unvalidated);
        Some(member.conversation)
    }

    /// Removes all that fail the test.
    pub(super) fn retain(&mut self, test: impl Fn(&Arc<Conversation>) -> bool) {
        let failed = self.by_peer.iter().filter(|(_, member)| !test(&member.conversation));
        let failed: Vec<SocketAddr> = failed.map(|(peer, _)| *peer).collect();
        for peer in failed {
            self.remove(peer);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Conversation>> {
        self.by_peer.values().map(|member| &member.conversation)
    }

    /// Removes everything.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Arc<Conversation>> {
        std::mem::take(self).by_peer.into_values().map(|member| member.conversation)
    }

    /// Returns whether one more without a validated address would exceed `most`, of which half may be of one network.
    pub(super) fn is_crowded(&self, newcomer: SocketAddr, most: usize) -> bool {
        self.unvalidated.len() >= most || self.is_network_crowded(newcomer, most)
    }

    /// Removes the oldest without a validated address, of the newcomer's network if that has more than its share.
    pub(super) fn evict(&mut self, newcomer: SocketAddr, most: usize) -> Option<Arc<Conversation>> {
        let network = Network::of(newcomer.ip());
        let is_own = self.is_network_crowded(newcomer, most);
        let mut candidates = self.unvalidated.values();
        let oldest = candidates.find(|peer| !is_own || Network::of(peer.ip()) == network)?;
        self.remove(*oldest)
    }

    fn is_network_crowded(&self, newcomer: SocketAddr, most: usize) -> bool {
        let own = self.networks.get(&Network::of(newcomer.ip())).copied().unwrap_or_default();
        own >= (most / 2).max(SHARE)
    }

    fn remove_unvalidated(&mut self, peer: SocketAddr, place: Option<u64>) {
        let Some(place) = place else { return };
        self.unvalidated.remove(&place);
        let network = Network::of(peer.ip());
        if let Some(count) = self.networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
    }
}

/// Places that a network has at least, unless there are fewer in total.
const SHARE: usize = 64;

/// Network that one sender of forged addresses may own: a /24 of IPv4, a /64 of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network(u64);

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits() >> 8)),
            // None of these begins with 40 zero bits, as those above do, except for unassigned addresses.
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_is_a_24_of_ipv4_and_a_64_of_ipv6() {
        let network = |address: &str| Network::of(address.parse().unwrap());
        assert_eq!(network("192.0.2.1"), network("192.0.2.200"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.7"));
        assert_ne!(network("192.0.2.1"), network("192.0.3.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::2:3"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    }
}

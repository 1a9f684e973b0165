use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::conversation::Conversation;

/// The conversations of a socket, by the address of the peer.
///
/// A peer with a validated address can have a second one, whose address is not validated: it replaces the first one
/// when it is. A client that was restarted at the same address starts such a conversation, and so does a sender that
/// forges the address.
///
/// Those with an unvalidated address are in a separate list, the oldest first: a flood of forged addresses evicts only
/// its own entries, not those of validated peers.
#[derive(Debug, Default)]
pub(super) struct ConversationTable {
    by_peer: HashMap<SocketAddr, Members>,
    count: usize,
    /// Those of unvalidated peers, by the order of their start.
    unvalidated: BTreeMap<u64, Arc<Conversation>>,
    /// The number of unvalidated peers of each network.
    networks: HashMap<Network, usize>,
    begun: u64,
}

/// The conversations with one address.
#[derive(Debug)]
struct Members {
    first: Member,
    /// Without a validated address; only next to one that has it.
    second: Option<Member>,
}

#[derive(Debug)]
pub(super) struct Member {
    conv: u32,
    pub(super) conversation: Arc<Conversation>,
    /// Its position in the list, unless the address is validated.
    unvalidated: Option<u64>,
}

impl Member {
    pub(super) fn is_validated(&self) -> bool {
        self.unvalidated.is_none()
    }
}

impl ConversationTable {
    /// Returns the conversation of a datagram with this number. One without a number, parity, belongs to the first one.
    pub(super) fn get(&self, peer: &SocketAddr, conv: Option<u32>) -> Option<&Member> {
        let Members { first, second } = self.by_peer.get(peer)?;
        [Some(first), second.as_ref()]
            .into_iter()
            .flatten()
            .find(|member| conv.is_none_or(|conv| conv == member.conv))
    }

    /// Returns whether a peer has a conversation.
    pub(super) fn has(&self, peer: &SocketAddr) -> bool {
        self.by_peer.contains_key(peer)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Conversation>> {
        let members =
            self.by_peer.values().flat_map(|members| [Some(&members.first), members.second.as_ref()]);
        members.flatten().map(|member| &member.conversation)
    }

    /// Adds a conversation of a peer that has none without a validated address.
    pub(super) fn insert(&mut self, conv: u32, conversation: Arc<Conversation>, is_validated: bool) {
        let peer = conversation.peer();
        let mut member = Member { conv, conversation: conversation.clone(), unvalidated: None };
        if !is_validated {
            self.begun += 1;
            self.unvalidated.insert(self.begun, conversation);
            *self.networks.entry(Network::of(peer.ip())).or_default() += 1;
            member.unvalidated = Some(self.begun);
        }
        self.count += 1;
        match self.by_peer.entry(peer) {
            Entry::Vacant(vacant) => _ = vacant.insert(Members { first: member, second: None }),
            Entry::Occupied(mut known) => known.get_mut().second = Some(member),
        }
    }

    /// Marks the address of a conversation's peer as validated. Returns the peer's other conversation, which it
    /// replaces.
    pub(super) fn validate(&mut self, conversation: &Arc<Conversation>) -> Option<Arc<Conversation>> {
        let members = self.by_peer.get_mut(&conversation.peer())?;
        let is_second = members.second.take_if(|second| Arc::ptr_eq(&second.conversation, conversation));
        let (member, replaced) = match is_second {
            Some(second) => {
                let first = std::mem::replace(&mut members.first, second);
                self.count -= 1;
                (&mut members.first, Some(first.conversation))
            }
            None => (&mut members.first, None),
        };
        let place = member.unvalidated.take();
        self.remove_unvalidated(place);
        replaced
    }

    /// Removes the conversation of a peer whose address is not validated, since the peer has started another one.
    pub(super) fn displace(&mut self, peer: &SocketAddr) -> Option<Arc<Conversation>> {
        let Members { first, second } = self.by_peer.get(peer)?;
        let member = second.as_ref().unwrap_or(first);
        let displaced = (!member.is_validated()).then(|| member.conversation.clone())?;
        self.remove(&displaced);
        Some(displaced)
    }

    /// Removes a conversation, if it is there.
    pub(super) fn remove(&mut self, conversation: &Arc<Conversation>) {
        let Entry::Occupied(mut known) = self.by_peer.entry(conversation.peer()) else { return };
        let Members { first, second } = known.get_mut();
        let removed = if Arc::ptr_eq(&first.conversation, conversation) {
            match second.take() {
                Some(second) => std::mem::replace(first, second),
                None => known.remove().first,
            }
        } else {
            let is_it = |second: &mut Member| Arc::ptr_eq(&second.conversation, conversation);
            let Some(removed) = second.take_if(is_it) else { return };
            removed
        };
        self.count -= 1;
        self.remove_unvalidated(removed.unvalidated);
    }

    /// Removes all that fail the test.
    pub(super) fn retain(&mut self, test: impl Fn(&Arc<Conversation>) -> bool) {
        let failed: Vec<_> = self.iter().filter(|conversation| !test(conversation)).cloned().collect();
        for conversation in failed {
            self.remove(&conversation);
        }
    }

    /// Removes everything.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Arc<Conversation>> {
        let members = std::mem::take(self).by_peer.into_values();
        let members = members.flat_map(|members| [Some(members.first), members.second]);
        members.flatten().map(|member| member.conversation)
    }

    /// Returns whether one more without a validated address would exceed `most`, half of which may belong to one
    /// network.
    pub(super) fn is_crowded(&self, newcomer: SocketAddr, most: usize) -> bool {
        self.unvalidated.len() >= most || self.is_network_crowded(newcomer, most)
    }

    /// Removes the oldest without a validated address, of the newcomer's network if that has more than its share.
    pub(super) fn evict(&mut self, newcomer: SocketAddr, most: usize) -> Option<Arc<Conversation>> {
        let network = Network::of(newcomer.ip());
        let is_own = self.is_network_crowded(newcomer, most);
        let mut candidates = self.unvalidated.values();
        let is_candidate =
            |candidate: &&Arc<Conversation>| !is_own || Network::of(candidate.peer().ip()) == network;
        let oldest = candidates.find(is_candidate)?.clone();
        self.remove(&oldest);
        Some(oldest)
    }

    fn is_network_crowded(&self, newcomer: SocketAddr, most: usize) -> bool {
        let own = self.networks.get(&Network::of(newcomer.ip())).copied().unwrap_or_default();
        own >= (most / 2).max(SHARE)
    }

    fn remove_unvalidated(&mut self, place: Option<u64>) {
        let Some(removed) = place.and_then(|place| self.unvalidated.remove(&place)) else { return };
        let network = Network::of(removed.peer().ip());
        if let Some(count) = self.networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
    }
}

/// Minimum number of places of a network, unless there are fewer in total.
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

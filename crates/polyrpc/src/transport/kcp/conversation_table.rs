use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::conversation::Conversation;
use crate::transport::EvictionClass;

/// The conversations of a socket, by the address of the peer.
///
/// A peer with a validated address can have a second one, whose address is not validated: it replaces the first one
/// when it is. A client that was restarted at the same address starts such a conversation, and so does a sender that
/// forges the address.
///
/// Those with an unvalidated address are in a separate list, the oldest first: a flood of forged addresses evicts only
/// its own entries, not those of validated peers. Of these, the most dispensable make room for others.
#[derive(Debug, Default)]
pub(super) struct ConversationTable {
    by_peer: HashMap<SocketAddr, Members>,
    count: usize,
    /// Those of unvalidated peers, by the order of their start.
    unvalidated: BTreeMap<u64, Arc<Conversation>>,
    networks: HashMap<Network, NetworkCounts>,
    begun: u64,
}

/// The number of conversations of a network.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct NetworkCounts {
    unvalidated: usize,
    validated: usize,
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

    /// Returns the number of those with a validated address.
    pub(super) fn validated_count(&self) -> usize {
        self.count - self.unvalidated.len()
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
        let counts = self.networks.entry(Network::new(peer.ip())).or_default();
        match is_validated {
            true => counts.validated += 1,
            false => {
                counts.unvalidated += 1;
                self.begun += 1;
                self.unvalidated.insert(self.begun, conversation);
                member.unvalidated = Some(self.begun);
            }
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
        if let Some(position) = member.unvalidated.take() {
            self.unvalidated.remove(&position);
            self.update_counts(conversation.peer(), |counts| {
                counts.unvalidated -= 1;
                counts.validated += 1;
            });
        }
        if replaced.is_some() {
            self.update_counts(conversation.peer(), |counts| counts.validated -= 1);
        }
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
        if let Some(position) = removed.unvalidated {
            self.unvalidated.remove(&position);
        }
        self.update_counts(conversation.peer(), |counts| match removed.unvalidated {
            Some(_) => counts.unvalidated -= 1,
            None => counts.validated -= 1,
        });
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

    /// Returns whether one more without a validated address would exceed `max`, half of which may belong to one
    /// network.
    pub(super) fn is_crowded(&self, newcomer: SocketAddr, max: usize) -> bool {
        self.unvalidated.len() >= max || self.is_network_crowded(newcomer, max)
    }

    /// Removes the oldest without a validated address, of the newcomer's network if that has more than its share.
    pub(super) fn evict(&mut self, newcomer: SocketAddr, max: usize) -> Option<Arc<Conversation>> {
        let network = Network::new(newcomer.ip());
        let is_own = self.is_network_crowded(newcomer, max);
        let mut candidates = self.unvalidated.values();
        let is_candidate =
            |candidate: &&Arc<Conversation>| !is_own || Network::new(candidate.peer().ip()) == network;
        let oldest = candidates.find(is_candidate)?.clone();
        self.remove(&oldest);
        Some(oldest)
    }

    /// Removes some of those with a validated address that wait for nothing, to make room for `newcomer`: those of the
    /// network that has most first, and those that have waited longest. A network that has more than half of the `max`
    /// slots displaces only its own.
    pub(super) fn evict_waiting(
        &mut self,
        newcomer: &Arc<Conversation>,
        max: usize,
    ) -> Vec<Arc<Conversation>> {
        let own = Network::new(newcomer.peer().ip());
        let is_majority = self.counts(own).validated > max / 2;
        let mut waiting = Vec::new();
        let mut lowest = EvictionClass::Stuck;
        for conversation in self.others(newcomer) {
            let network = Network::new(conversation.peer().ip());
            let (class, since) = conversation.eviction();
            if class > lowest || is_majority && network != own {
                continue;
            }
            if class < lowest {
                waiting.clear();
                lowest = class;
            }
            waiting.push((Reverse(self.counts(network).validated), since, conversation.clone()));
        }
        waiting.sort_by_key(|(largest, since, _)| (*largest, *since));
        waiting.truncate((max / EVICTION_DIVISOR).max(1));
        let evicted: Vec<_> = waiting.into_iter().map(|(_, _, conversation)| conversation).collect();
        evicted.iter().for_each(|conversation| self.remove(conversation));
        evicted
    }

    /// Removes the most dispensable conversation of a network that has more than half of the `max` slots, to make
    /// room for a newcomer of another one.
    pub(super) fn evict_of_majority(
        &mut self,
        newcomer: &Arc<Conversation>,
        max: usize,
    ) -> Option<Arc<Conversation>> {
        let is_majority = |(_, counts): &(&Network, &NetworkCounts)| counts.validated > max / 2;
        let (&largest, _) = self.networks.iter().find(is_majority)?;
        if largest == Network::new(newcomer.peer().ip()) {
            return None;
        }
        let others = self.others(newcomer);
        let others = others.filter(|conversation| Network::new(conversation.peer().ip()) == largest);
        let evicted = others.min_by_key(|conversation| conversation.eviction())?.clone();
        self.remove(&evicted);
        Some(evicted)
    }

    /// Returns the conversations with a validated address, except for one.
    fn others(&self, newcomer: &Arc<Conversation>) -> impl Iterator<Item = &Arc<Conversation>> {
        let validated = self.by_peer.values().map(|members| &members.first).filter(|one| one.is_validated());
        validated.map(|member| &member.conversation).filter(move |other| !Arc::ptr_eq(other, newcomer))
    }

    fn is_network_crowded(&self, newcomer: SocketAddr, max: usize) -> bool {
        self.counts(Network::new(newcomer.ip())).unvalidated >= (max / 2).max(MIN_NETWORK_SLOTS)
    }

    fn counts(&self, network: Network) -> NetworkCounts {
        self.networks.get(&network).copied().unwrap_or_default()
    }

    fn update_counts(&mut self, peer: SocketAddr, update: impl FnOnce(&mut NetworkCounts)) {
        if let Entry::Occupied(mut counts) = self.networks.entry(Network::new(peer.ip())) {
            update(counts.get_mut());
            if *counts.get() == NetworkCounts::default() {
                counts.remove();
            }
        }
    }
}

/// Minimum number of slots of a network, unless there are fewer in total.
const MIN_NETWORK_SLOTS: usize = 64;
/// The part of the slots that is freed at a time, one in so many: to find those that wait, all are examined.
const EVICTION_DIVISOR: usize = 64;

/// Network that one sender of forged addresses may own: a /24 of IPv4, a /64 of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network(u64);

impl Network {
    fn new(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits() >> 8)),
            // None of these begins with 40 zero bits, as those above do, except for unassigned addresses.
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use polyrpc_kcp::{Config, Millis, Session, Settings};
    use tokio::net::UdpSocket;

    use super::super::conversation::Outlet;
    use super::super::timers::Timers;
    use super::*;

    #[tokio::test]
    async fn conversations_of_a_network_are_counted_until_they_are_removed() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let outlet = Arc::new(Outlet { socket, timers: Timers::new(), is_connected: false });
        let settings = Arc::new(Settings::new(Config::default()).unwrap());
        let conversation = |conv, peer: &str| {
            let session = Session::accept(settings.clone(), conv, [7; 32], Millis(0));
            Conversation::new(outlet.clone(), peer.parse().unwrap(), session)
        };
        let mut table = ConversationTable::default();
        let network = Network::new("192.0.2.1".parse().unwrap());
        let counted = |table: &ConversationTable| {
            let NetworkCounts { unvalidated, validated } = table.counts(network);
            assert_eq!((table.unvalidated.len(), table.validated_count()), (unvalidated, validated));
            (unvalidated, validated)
        };
        let (first, other) = (conversation(1, "192.0.2.1:1"), conversation(2, "192.0.2.2:1"));
        table.insert(1, first.clone(), false);
        table.insert(2, other.clone(), false);
        assert_eq!(counted(&table), (2, 0));
        assert!(table.validate(&first).is_none());
        assert_eq!(counted(&table), (1, 1));
        // It replaces the first one once its address is validated too.
        let second = conversation(3, "192.0.2.1:1");
        table.insert(3, second.clone(), false);
        assert_eq!(counted(&table), (2, 1));
        assert!(Arc::ptr_eq(&table.validate(&second).unwrap(), &first));
        assert_eq!(counted(&table), (1, 1));
        let third = conversation(4, "192.0.2.1:1");
        table.insert(4, third, false);
        assert!(table.displace(&"192.0.2.1:1".parse().unwrap()).is_some());
        assert_eq!(counted(&table), (1, 1));
        table.remove(&second);
        table.remove(&second);
        assert_eq!(counted(&table), (1, 0));
        table.remove(&other);
        assert!(table.is_empty() && table.networks.is_empty());
    }

    #[test]
    fn network_is_a_24_of_ipv4_and_a_64_of_ipv6() {
        let network = |address: &str| Network::new(address.parse().unwrap());
        assert_eq!(network("192.0.2.1"), network("192.0.2.200"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.7"));
        assert_ne!(network("192.0.2.1"), network("192.0.3.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::2:3"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    }
}

use std::collections::BTreeMap;

/// Order of smooth weighted round robin, computed turn by turn.
///
/// Servers of the same weight alternate among themselves, so they run as one [`WeightGroup`]. The gain of a group is a
/// line over the turns whose slope is its weight; it drops when the group pays. The groups form a tournament tree whose
/// nodes store until when their winner stays ahead. A turn replays only the nodes on the payer's path and those in
/// which the winner has been overtaken (a kinetic tournament: J. Basch, L. Guibas, J. Hershberger, "Data structures for
/// mobile data"). The number of replayed nodes is about the bit length of the number of different weights.
pub(super) struct WeightedSchedule {
    groups: Vec<WeightGroup>,
    /// The sum of all weights.
    total: i64,
    turn: u64,
    /// Nodes of the tournament tree, in the order of a binary heap: the first node is `ROOT`, and the children of a node
    /// are at twice its index and at the index after that. With `n` groups, the last `n` nodes are the leaves: the
    /// groups themselves.
    nodes: Vec<TournamentNode>,
}

/// Servers of the same weight.
struct WeightGroup {
    weight: i64,
    /// Their indices, in ascending order.
    members: Vec<usize>,
    /// Index of the member whose turn it is.
    next: usize,
    /// Gain of each member from `next` on, as of the turn `at`; the members before `next` have paid since.
    gained: i64,
    at: u64,
}

/// Node of the tournament tree.
#[derive(Clone, Copy)]
struct TournamentNode {
    /// Index of the group that is ahead of all other groups below this node.
    winner: usize,
    /// Turn from which this winner, or that of a node further down, may be overtaken.
    until: u64,
}

/// Index of the root of the tournament tree.
const ROOT: usize = 1;
const FOREVER: u64 = u64::MAX;

impl WeightedSchedule {
    /// Creates the schedule of servers with these weights.
    pub(super) fn new(weighted: impl Iterator<Item = (usize, u64)>) -> Self {
        let mut members = BTreeMap::<u64, Vec<usize>>::new();
        for (index, weight) in weighted.filter(|&(_, weight)| weight > 0) {
            members.entry(weight).or_default().push(index);
        }
        let group = |(weight, members)| WeightGroup { weight, members, next: 0, gained: 0, at: 0 };
        let groups: Vec<_> =
            members.into_iter().map(|(weight, members)| group((weight as i64, members))).collect();
        let total = groups.iter().map(|group| group.weight * group.members.len() as i64).sum();
        let leaf = |node: usize| TournamentNode { winner: node.saturating_sub(groups.len()), until: FOREVER };
        let mut schedule = Self { nodes: (0..2 * groups.len()).map(leaf).collect(), groups, total, turn: 0 };
        (ROOT..schedule.groups.len()).rev().for_each(|node| schedule.replay_node(node));
        schedule
    }

    /// Returns the index of the server whose turn it is; `None` if there are no servers.
    pub(super) fn next(&mut self) -> Option<usize> {
        if self.groups.is_empty() {
            return None;
        }
        self.turn += 1;
        self.replay_overtaken(ROOT);
        let winner = self.nodes[ROOT].winner;
        let index = self.groups[winner].take_turn(self.total, self.turn);
        self.replay_with(winner);
        Some(index)
    }

    /// Replays the nodes whose winner may have been overtaken by now, from this one down.
    fn replay_overtaken(&mut self, node: usize) {
        if self.nodes[node].until <= self.turn {
            self.replay_overtaken(2 * node);
            self.replay_overtaken(2 * node + 1);
            self.replay_node(node);
        }
    }

    /// Replays the nodes on the path of a group.
    fn replay_with(&mut self, group: usize) {
        let mut node = (self.groups.len() + group) / 2;
        while node >= ROOT {
            self.replay_node(node);
            node /= 2;
        }
    }

    /// Computes the winner of this node, and until when it stays ahead.
    fn replay_node(&mut self, node: usize) {
        let (one, other) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        let (mut ahead, mut behind) = (one.winner, other.winner);
        if self.groups[behind].rank(self.turn) > self.groups[ahead].rank(self.turn) {
            (ahead, behind) = (behind, ahead);
        }
        let overtaken = self.groups[ahead].overtaken_at(&self.groups[behind], self.turn);
        self.nodes[node] = TournamentNode { winner: ahead, until: overtaken.min(one.until).min(other.until) };
    }
}

impl WeightGroup {
    /// Returns the gain of the member whose turn it is, as of now.
    fn gain_at(&self, now: u64) -> i64 {
        self.gained + self.weight * (now - self.at) as i64
    }

    /// Returns the sort key: higher gain first, then the lower index.
    fn rank(&self, now: u64) -> (i64, std::cmp::Reverse<usize>) {
        (self.gain_at(now), std::cmp::Reverse(self.members[self.next]))
    }

    /// Returns the first turn after `now` at which `other` is ahead of `self`, which is ahead now.
    fn overtaken_at(&self, other: &Self, now: u64) -> u64 {
        let closer = other.weight - self.weight;
        if closer <= 0 {
            return FOREVER;
        }
        let ahead = self.gain_at(now) - other.gain_at(now);
        let level = ahead / closer;
        let level_is_enough = ahead % closer == 0 && other.members[other.next] < self.members[self.next];
        now + level as u64 + u64::from(!level_is_enough)
    }

    /// Lets the member whose turn it is pay, and advances to the next one.
    fn take_turn(&mut self, price: i64, now: u64) -> usize {
        let index = self.members[self.next];
        self.next += 1;
        if self.next == self.members.len() {
            // All members have paid now.
            (self.next, self.gained, self.at) = (0, self.gain_at(now) - price, now);
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, as rpcx has it (`client/selector.go`).
    fn as_defined(weights: &[u64], turns: usize) -> Vec<usize> {
        let total: i64 = weights.iter().map(|&weight| weight as i64).sum();
        let mut current = vec![0; weights.len()];
        let mut turn = || {
            let mut first = 0;
            for index in 0..weights.len() {
                current[index] += weights[index] as i64;
                if current[index] > current[first] {
                    first = index;
                }
            }
            current[first] -= total;
            first
        };
        (0..turns).map(|_| turn()).collect()
    }

    fn schedule(weights: &[u64], turns: usize) -> Vec<usize> {
        let mut schedule = WeightedSchedule::new(weights.iter().copied().enumerate());
        (0..turns).map_while(|_| schedule.next()).collect()
    }

    #[test]
    fn order_equals_the_definition() {
        for weights in [
            &[5, 1, 1][..],
            &[1, 1, 5],
            &[1],
            &[7],
            &[1, 1, 1],
            &[3, 2, 1],
            &[1, 2, 3, 4, 5, 6, 7],
            &[4, 4, 2, 2, 1, 8, 1],
            &[100, 1, 99, 1, 50],
            &[10, 10, 10, 1],
            &[1000, 3],
        ] {
            assert_eq!(schedule(weights, 3000), as_defined(weights, 3000), "{weights:?}");
        }
        assert_eq!(schedule(&[5, 1, 1], 7), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn order_equals_the_definition_for_random_weights() {
        let mut state = 1_u64;
        let mut any = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        for _ in 0..300 {
            let most = [2, 5, 20, 1000, 1 << 32][any(5) as usize];
            // A weight of zero is never chosen unless all weights are zero.
            let weights: Vec<_> = (0..1 + any(40)).map(|_| 1 + any(most - 1)).collect();
            assert_eq!(schedule(&weights, 500), as_defined(&weights, 500), "{weights:?}");
        }
    }

    #[test]
    fn server_without_weight_is_never_picked() {
        assert_eq!(schedule(&[0, 2, 0, 1], 6), [1, 3, 1, 1, 3, 1]);
        assert!(schedule(&[0, 0], 6).is_empty());
        assert!(schedule(&[], 6).is_empty());
    }
}

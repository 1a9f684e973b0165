//! Assignment of partitions to servers, according to the servers' tags.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use polyrpc_core::Status;

use crate::client::Result;
use crate::discovery::Instance;

/// Position of a part among all parts: of a client in a [`Parallel`](super::Parallel), or of a partition in a
/// [`Partition`](super::Partition). brpc's struct `Partition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionIndex {
    /// Index of the part, starting at zero.
    pub index: usize,
    /// Number of parts.
    pub count: usize,
}

impl FromStr for PartitionIndex {
    type Err = Status;

    /// Parses `index/count`, such as `0/3`: the form of brpc's examples, and [`Partition`](super::Partition)'s default.
    fn from_str(tag: &str) -> Result<Self, Status> {
        let number = |text: &str| text.trim().parse().ok();
        tag.split_once('/')
            .and_then(|(index, of)| Some(Self { index: number(index)?, count: number(of)? }))
            .filter(Self::is_valid)
            .ok_or_else(|| {
                Status::invalid_argument(format!("`{tag}` is not a partition: expected N/M, N below M"))
            })
    }
}

impl PartitionIndex {
    fn is_valid(&self) -> bool {
        self.index < self.count
    }
}

impl fmt::Display for PartitionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// brpc's `PartitionParser`: parses a tag.
pub(super) type Parser = dyn Fn(&str) -> Option<PartitionIndex> + Send + Sync;

/// Set of servers, grouped by the partitions that they hold.
#[derive(Debug)]
pub(super) struct PartitionAssignment {
    /// By the number of partitions, and the index of the partition.
    holders: BTreeMap<usize, BTreeMap<usize, Vec<Arc<Instance>>>>,
}

impl PartitionAssignment {
    pub(super) fn new(set: Vec<Instance>, parse: &Parser) -> Self {
        let mut holders = BTreeMap::<_, BTreeMap<_, Vec<_>>>::new();
        for instance in set.into_iter().map(Arc::new) {
            let portions =
                instance.attributes.values("tag").filter_map(parse).filter(PartitionIndex::is_valid);
            for PartitionIndex { index, count: of } in portions {
                holders.entry(of).or_default().entry(index).or_default().push(instance.clone());
            }
        }
        holders.values_mut().flat_map(BTreeMap::values_mut).for_each(dedup_holders);
        Self { holders }
    }

    /// Returns the servers that hold this partition.
    pub(super) fn holders(&self, PartitionIndex { index, count: of }: PartitionIndex) -> Vec<Instance> {
        let holders = self.holders.get(&of).and_then(|parts| parts.get(&index));
        holders.into_iter().flatten().map(|instance| (**instance).clone()).collect()
    }

    /// Returns the capacity of each complete partitioning: that of its weakest partition, which is the sum of the
    /// weights of its eligible servers (brpc `partition_channel.cpp`, `Weight`).
    pub(super) fn capacities(&self, counts: impl Fn(&Instance) -> bool) -> BTreeMap<usize, u32> {
        let weight = |holders: &Vec<Arc<Instance>>| {
            let weights = holders.iter().filter(|one| counts(one)).map(|one| one.attributes.weight());
            weights.fold(0, u32::saturating_add)
        };
        let complete = self.holders.iter().filter(|&(&of, parts)| of <= MAX_PARTS && parts.len() == of);
        let capacities = complete.map(|(of, parts)| (*of, parts.values().map(weight).min().unwrap_or(0)));
        capacities.filter(|(_, capacity)| *capacity > 0).collect()
    }
}

/// Removes duplicate entries; the first one wins.
fn dedup_holders(holders: &mut Vec<Arc<Instance>>) {
    holders
        .sort_by(|one, other| one.network.cmp(&other.network).then_with(|| one.address.cmp(&other.address)));
    holders.dedup_by(|later, first| later.network == first.network && later.address == first.address);
}

/// Limit of the number of partitions: every call would go to as many servers.
const MAX_PARTS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_parsed_as_partition_index_and_count() {
        assert_eq!("1/3".parse::<PartitionIndex>().unwrap(), PartitionIndex { index: 1, count: 3 });
        for wrong in ["", "3", "3/3", "-1/3", "0/0", "a/b", "0/99999999999999999999"] {
            assert!(wrong.parse::<PartitionIndex>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn capacity_of_a_partitioning_is_that_of_its_weakest_partition() {
        let set: Vec<Instance> = [
            "a:1 tag=0/2&weight=3",
            "b:1 tag=1/2",
            "c:1 tag=1/2&tag=0/1",
            "d:1 tag=0/3",
            "e:1 tag=1/3",
            "f:1 tag=0/1&weight=0",
            "g:1 tag=1/2&state=inactive",
            "h:1 tag=7/4000000000",
            "c:1 tag=1/2&weight=9",
        ]
        .iter()
        .map(|line| {
            let (address, attributes) = line.split_once(' ').unwrap();
            Instance::tcp(address).with(attributes.parse().unwrap())
        })
        .collect();
        let assignment = PartitionAssignment::new(set, &|tag| tag.parse().ok());
        let capacities = assignment.capacities(|instance| instance.attributes.is_active());
        assert_eq!(capacities, BTreeMap::from([(1, 1), (2, 2)]));
    }

    #[test]
    fn duplicate_holders_of_a_partition_are_ignored() {
        let holder = |tags: &str| Instance::tcp("a:1").with(tags.parse().unwrap());
        let set = vec![holder("tag=0/2&tag=0/2"), holder("tag=1/2"), holder("tag=0/2&weight=2")];
        let assignment = PartitionAssignment::new(set, &|tag| tag.parse().ok());
        assert_eq!(assignment.holders(PartitionIndex { index: 0, count: 2 }), [holder("tag=0/2&tag=0/2")]);
        assert_eq!(assignment.holders(PartitionIndex { index: 1, count: 2 }), [holder("tag=1/2")]);
        assert_eq!(assignment.holders(PartitionIndex { index: 0, count: 1 }), []);
    }

    #[test]
    fn server_that_claims_too_many_partitions_is_ignored() {
        let claim = |of: usize| {
            let mut instance = Instance::tcp("a:1");
            (0..of).for_each(|index| {
                instance.attributes.append("tag", PartitionIndex { index, count: of }.to_string())
            });
            PartitionAssignment::new(vec![instance], &|tag| tag.parse().ok()).capacities(|_| true)
        };
        assert_eq!(claim(MAX_PARTS).len(), 1);
        assert_eq!(claim(MAX_PARTS + 1).len(), 0);
    }
}

use std::net::SocketAddr;
use std::sync::Arc;

use polyrpc_core::Status;

use super::key;
use super::murmur::murmur;
use crate::client::Result;
use crate::client::balance::candidate_state::CandidateState;
use crate::client::balance::{Candidate, LoadBalancer, PickContext, Picker};
use crate::discovery::Instance;

/// Ring hashing: brpc's `c_murmurhash`, `c_md5` and `c_ketama`, bit for bit.
///
/// Each server has a hundred points on the ring, which depend only on its address. A call goes to the server of the
/// first point at or after its key. All clients agree, and when a server comes or goes, only its own keys move, spread
/// evenly over the others. If the server may not take the call, the next point decides (brpc
/// `policy/consistent_hashing_load_balancer.cpp`).
#[derive(Debug)]
pub struct Ring {
    hash: Hash,
    replicas: usize,
    with_tags: bool,
    /// Points of each server, which are expensive to compute.
    state: CandidateState<Box<[u32]>>,
}

#[derive(Debug, Clone, Copy)]
enum Hash {
    Murmur,
    Md5,
    Ketama,
}

impl Ring {
    /// brpc's `c_murmurhash`: points by MurmurHash3.
    pub fn murmur() -> Self {
        Self::new(Hash::Murmur)
    }

    /// brpc's `c_md5`: points by MD5, 32 bits of each digest.
    pub fn md5() -> Self {
        Self::new(Hash::Md5)
    }

    /// brpc's `c_ketama`, memcached's ketama: points by MD5, four of each digest.
    pub fn ketama() -> Self {
        Self::new(Hash::Ketama)
    }

    fn new(hash: Hash) -> Self {
        Self { hash, replicas: 100, with_tags: false, state: CandidateState::default() }
    }

    /// Sets the number of points per server, by default 100. More points give more even shares, which vary by about one
    /// over the square root of the number.
    ///
    /// # Errors
    ///
    /// If it is zero or more than 10,000; for ketama, also if it is no multiple of four.
    pub fn replicas(mut self, replicas: usize) -> Result<Self> {
        let step = if matches!(self.hash, Hash::Ketama) { 4 } else { 1 };
        if !(1..=MAX_REPLICAS).contains(&replicas) || !replicas.is_multiple_of(step) {
            return Err(Status::invalid_argument(format!(
                "a ring has {step} to {MAX_REPLICAS} replicas of a server in steps of {step}, not {replicas}"
            ))
            .into());
        }
        self.replicas = replicas;
        Ok(self)
    }

    /// Distinguishes servers at the same address by brpc's tag, as its flag `consistent_hashing_enable_server_tag`
    /// does.
    #[must_use]
    pub fn with_tags(mut self) -> Self {
        self.with_tags = true;
        self
    }

    fn points(&self, instance: &Instance) -> Box<[u32]> {
        let name = |replica| match instance.attributes.tag() {
            Some(tag) if self.with_tags && !tag.is_empty() => {
                format!("{}-{replica}-{tag}", instance.address)
            }
            _ => format!("{}-{replica}", instance.address),
        };
        match self.hash {
            Hash::Murmur => (0..self.replicas).map(|replica| murmur(name(replica).as_bytes())).collect(),
            Hash::Md5 => (0..self.replicas).map(|replica| md5(&name(replica))[0]).collect(),
            Hash::Ketama => (0..self.replicas / 4).flat_map(|replica| md5(&name(replica))).collect(),
        }
    }
}

const MAX_REPLICAS: usize = 10_000;

fn md5(text: &str) -> [u32; 4] {
    let digest = md5::compute(text).0;
    let (words, _) = digest.as_chunks::<4>();
    std::array::from_fn(|word| u32::from_le_bytes(words[word]))
}

impl LoadBalancer for Ring {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let points = self.state.get_or_insert(candidates, |candidate| self.points(candidate.instance()));
        Box::new(RingPicker::new(in_order(candidates), &points))
    }
}

/// Indices of the servers in the order of their addresses, which decides where points coincide.
fn in_order(candidates: &[Candidate]) -> Vec<usize> {
    let mut indices: Vec<_> = (0..candidates.len()).collect();
    indices.sort_by_cached_key(|&index| {
        let address = &candidates[index].instance().address;
        (address.parse::<SocketAddr>().ok(), address.clone())
    });
    indices
}

/// The ring.
struct RingPicker {
    /// Sorted; separate from their servers, so that a search touches less memory.
    hashes: Box<[u32]>,
    indices: Box<[u32]>,
    servers: usize,
}

impl RingPicker {
    fn new(in_order: Vec<usize>, points: &[Arc<Box<[u32]>>]) -> Self {
        // Hash and rank are packed into one word and sorted together.
        let ranked = in_order.iter().enumerate();
        let mut ring: Vec<_> = ranked
            .flat_map(|(rank, &index)| {
                points[index].iter().map(move |&hash| u64::from(hash) << 32 | rank as u64)
            })
            .collect();
        ring.sort_unstable();
        let index_of = |point: &u64| in_order[(point & u64::from(u32::MAX)) as usize] as u32;
        Self {
            hashes: ring.iter().map(|point| (point >> 32) as u32).collect(),
            indices: ring.iter().map(index_of).collect(),
            servers: points.len(),
        }
    }

    /// Iterates over the servers of all points from a hash on, around the ring.
    fn servers_from(&self, hash: u32) -> impl Iterator<Item = usize> {
        let first = self.hashes.partition_point(|&point| point < hash);
        let (before, behind) = self.indices.split_at(first);
        behind.iter().chain(before).map(|&index| index as usize)
    }
}

impl Picker for RingPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        let mut servers = self.servers_from(fold_key(key::hash_key(context)));
        let near = servers.by_ref().take(MAX_WALKED_POINTS).find(|&index| context.is_eligible(index));
        near.or_else(|| {
            // Before walking all points, check whether any server may take the call.
            let is_any = (0..self.servers).any(|index| context.is_eligible(index));
            is_any.then(|| servers.find(|&index| context.is_eligible(index))).flatten()
        })
    }
}

/// Number of points that are walked before the servers are checked.
const MAX_WALKED_POINTS: usize = 128;

/// Folds a key to 32 bits; brpc's request codes, which have 32 bits, stay unchanged.
fn fold_key(key: u64) -> u32 {
    key as u32 ^ (key >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::balance::tests::{candidates, context};
    use crate::discovery::Attributes;

    #[test]
    fn ring_points_equal_those_of_brpc() {
        let server = Instance::tcp("127.0.0.1:8000");
        let words = |text: &str| md5(text).to_vec();
        assert_eq!(Ring::murmur().points(&server)[7], murmur(b"127.0.0.1:8000-7"));
        assert_eq!(Ring::md5().points(&server)[99], words("127.0.0.1:8000-99")[0]);
        let ketama = Ring::ketama().points(&server);
        assert_eq!(ketama.len(), 100);
        assert_eq!(ketama[96..], words("127.0.0.1:8000-24"));
        // RFC 1321: d41d8cd98f00b204e9800998ecf8427e
        assert_eq!(words(""), [0xd98c_1dd4, 0x04b2_008f, 0x9809_80e9, 0x7e42_f8ec]);
    }

    #[test]
    fn tag_is_part_of_the_point_name_if_configured() {
        let tagged = Instance::tcp("h:1").with(Attributes::new().with("tag", "t"));
        assert_eq!(Ring::murmur().points(&tagged)[0], murmur(b"h:1-0"));
        assert_eq!(Ring::murmur().with_tags().points(&tagged)[0], murmur(b"h:1-0-t"));
    }

    #[test]
    fn first_point_at_or_after_the_key_wins() {
        let candidates = candidates(20);
        for ring in [Ring::murmur(), Ring::md5(), Ring::ketama()] {
            let mut points: Vec<_> = (0..20)
                .flat_map(|index| {
                    ring.points(candidates[index].instance()).into_iter().map(move |hash| (hash, index))
                })
                .collect();
            points.sort_unstable();
            let pick = ring.picker(&candidates);
            let keys = (0..2000_u32).map(|key| key.wrapping_mul(0x9e37_79b9));
            for key in keys.chain([0, u32::MAX]).chain(points.iter().map(|&(hash, _)| hash)) {
                let &(_, expected) = points.iter().find(|(hash, _)| *hash >= key).unwrap_or(&points[0]);
                let context = PickContext { key: Some(key.into()), ..context(&candidates) };
                assert_eq!(pick.pick(&context), Some(expected), "{ring:?} {key}");
            }
        }
    }

    #[test]
    fn servers_at_one_address_share_points_and_the_first_is_picked() {
        let twice = [Candidate::new(Instance::tcp("h:1")), Candidate::new(Instance::tcp("h:1"))];
        let pick = Ring::murmur().picker(&twice);
        assert_eq!(pick.pick(&context(&twice)), Some(0));
        twice[0].load().set_healthy(false);
        assert_eq!(pick.pick(&context(&twice)), Some(1));
    }

    #[test]
    fn addresses_are_ordered_numerically() {
        let named = |address: &str| Candidate::new(Instance::tcp(address));
        let servers = ["10.0.0.1:80", "9.0.0.1:80", "9.0.0.1:9", "b:1", "a:1"].map(named);
        assert_eq!(in_order(&servers), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn invalid_number_of_replicas_is_rejected() {
        assert!(Ring::murmur().replicas(7).is_ok());
        assert!(Ring::ketama().replicas(8).is_ok());
        for (ring, replicas) in [(Ring::md5(), 0), (Ring::md5(), 10_001), (Ring::ketama(), 10)] {
            assert!(ring.replicas(replicas).unwrap_err().to_string().contains("replicas"));
        }
    }
}

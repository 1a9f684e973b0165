use super::key;
use crate::client::balance::{Candidate, LoadBalancer, PickContext, Picker, available};

/// See [`Policy::jump`](super::super::Policy::jump).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Jump;

impl LoadBalancer for Jump {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let mut indices: Vec<_> = (0..candidates.len()).collect();
        indices.sort_by_cached_key(|&index| candidates[index].instance().to_string());
        Box::new(JumpPicker(indices))
    }
}

struct JumpPicker(Vec<usize>);

impl Picker for JumpPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        let Self(indices) = self;
        if indices.is_empty() {
            return None;
        }
        pick_available(context, indices, |key| indices[jump(key, indices.len())])
    }
}

/// Returns the first server that may take the call among those that `at` finds for the key and its rehashes; otherwise
/// the first available of all `indices`.
pub(super) fn pick_available(
    context: &PickContext<'_>,
    indices: &[usize],
    at: impl Fn(u64) -> usize,
) -> Option<usize> {
    let mut key = key::hash_key(context);
    let onward = || {
        let index = at(key);
        key = rehash(key);
        index
    };
    available::first_drawn(context, onward)
        .or_else(|| indices.iter().copied().find(|&index| context.is_eligible(index)))
}

/// Derives another key from this one; both jump independently.
pub(super) fn rehash(key: u64) -> u64 {
    key.wrapping_mul(0xc6a4_a793_5bd1_e995)
}

/// Returns one of `buckets`, always the same for a key. Adding a bucket moves the minimal number of keys.
pub(super) fn jump(mut key: u64, buckets: usize) -> usize {
    let (mut bucket, mut next) = (0, 0);
    while next < buckets as u64 {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1_u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as u64;
    }
    bucket as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::balance::tests::vectors;

    #[test]
    fn jump_hash_equals_that_of_go() {
        for vector in vectors()["jump_hash"].as_array().unwrap() {
            let key = vector["key"].as_str().unwrap().parse().unwrap();
            let buckets = vector["n"].as_u64().unwrap() as usize;
            assert_eq!(jump(key, buckets) as u64, vector["bucket"].as_u64().unwrap(), "{key} of {buckets}");
        }
    }
}

use super::key;
use crate::client::balance::{Candidate, LoadBalancer, PickContext, Picker, available};

/// Consistent hashing without memory: the rpcx of 2016.
///
/// The servers are in the order of their names and the key jumps to one of them (J. Lamping, E. Veach, "A fast, minimal
/// memory, consistent hash algorithm"). That moves as few keys as can be where servers come and go at the end of the
/// order; elsewhere all behind them move too, which [`DoubleJump`](super::DoubleJump) avoids. A key whose server may not
/// take the call jumps on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Jump;

impl LoadBalancer for Jump {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let mut places: Vec<_> = (0..candidates.len()).collect();
        places.sort_by_cached_key(|&place| candidates[place].instance().to_string());
        Box::new(JumpPicker(places))
    }
}

struct JumpPicker(Vec<usize>);

impl Picker for JumpPicker {
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        let Self(places) = self;
        if places.is_empty() {
            return None;
        }
        jumping_on(asked, places, |key| places[jump(key, places.len())])
    }
}

/// The first that may take the call of those that `at` finds for the key and for what becomes of it; else the first of
/// all `places`.
pub(super) fn jumping_on(
    asked: &PickContext<'_>,
    places: &[usize],
    at: impl Fn(u64) -> usize,
) -> Option<usize> {
    let mut key = key::hash_key(asked);
    let onward = || {
        let place = at(key);
        key = rehash(key);
        place
    };
    available::first_drawn(asked, onward)
        .or_else(|| places.iter().copied().find(|&place| asked.may_take(place)))
}

/// Another key that comes of this one: each jumps as if it had nothing to do with the other.
pub(super) fn rehash(key: u64) -> u64 {
    key.wrapping_mul(0xc6a4_a793_5bd1_e995)
}

/// One of `buckets`, always the same one for a key, and another one for as few keys as can be when there is a bucket
/// more.
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
    fn keys_jump_where_they_do_in_go() {
        for vector in vectors()["jump_hash"].as_array().unwrap() {
            let key = vector["key"].as_str().unwrap().parse().unwrap();
            let buckets = vector["n"].as_u64().unwrap() as usize;
            assert_eq!(jump(key, buckets) as u64, vector["bucket"].as_u64().unwrap(), "{key} of {buckets}");
        }
    }
}

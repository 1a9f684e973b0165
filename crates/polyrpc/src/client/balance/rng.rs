//! Random numbers for picks: no lock, no system call, not cryptographically secure.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a random number below `bound`; zero if `bound` is zero.
pub(super) fn below(bound: u64) -> u64 {
    // The upper half of the product: off by less than 2^-20 for any bound below 2^44 (D. Lemire, "Fast random integer
    // generation in an interval").
    ((u128::from(bits()) * u128::from(bound)) >> 64) as u64
}

/// Returns a random index below `n`; zero if `n` is zero.
pub(super) fn index(n: usize) -> usize {
    below(n as u64) as usize
}

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators").
fn bits() -> u64 {
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

thread_local! {
    // Each state of the standard hasher starts with keys of its own.
    static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish());
}

/// Seeds this thread's generator, so that every run draws the same numbers.
#[cfg(test)]
pub(super) fn set_seed(seed: u64) {
    STATE.set(seed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_the_bound_are_uniform() {
        set_seed(1);
        let mut drawn = [0_u32; 10];
        (0..100_000).for_each(|_| drawn[index(10)] += 1);
        // Seven standard deviations of 95.
        assert!(drawn.iter().all(|&times| times.abs_diff(10_000) < 665), "{drawn:?}");
    }

    #[test]
    fn bound_of_zero_yields_zero() {
        assert_eq!((below(0), below(1), index(0)), (0, 0, 0));
    }
}

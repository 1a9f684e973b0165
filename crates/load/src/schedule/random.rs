//! Pseudo-random numbers that are a function of a seed and an index, so that any thread computes those of its calls.

/// SplitMix64's output function.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// 64 random bits for this index of a stream.
pub(crate) fn random_bits(seed: u64, stream: Stream, index: u64) -> u64 {
    let state = mix(seed.wrapping_add(stream as u64)).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mix(state)
}

/// A number below `bound`, without a bias that matters for bounds below 2³².
pub(crate) fn random_below(seed: u64, stream: Stream, index: u64, bound: u64) -> u64 {
    let product = u128::from(random_bits(seed, stream, index)) * u128::from(bound);
    (product >> 64) as u64
}

/// A number above 0 and at most 1.
pub(crate) fn random_unit(seed: u64, stream: Stream, index: u64) -> f64 {
    ((random_bits(seed, stream, index) >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// Use of the numbers, so that they are independent of those of another use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream {
    Arrivals = 1,
    Methods = 2,
    Messages = 3,
    Template = 4,
}

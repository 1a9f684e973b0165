use std::sync::atomic::{AtomicU64, Ordering};

/// Sampler of a share of all calls, evenly spread: for a tenth, every tenth.
#[derive(Debug)]
pub(super) struct Sampler {
    /// In units of 2⁻³² calls.
    share: u64,
    taken: AtomicU64,
}

impl Sampler {
    /// Creates a sampler for a share between 0 (none) and 1 (all); NaN counts as 0.
    pub(super) fn new(share: f64) -> Self {
        // A float's conversion to an integer saturates.
        Self { share: (share.clamp(0.0, 1.0) * ALL as f64) as u64, taken: AtomicU64::new(0) }
    }

    /// Returns whether this call is sampled.
    pub(super) fn selects(&self) -> bool {
        if self.share == ALL {
            return true;
        }
        let before = self.taken.fetch_add(self.share, Ordering::Relaxed);
        before / ALL != before.wrapping_add(self.share) / ALL
    }
}

/// The share 1.0 as a fixed-point number: every call is sampled.
const ALL: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_spread_evenly() {
        for (share, want) in [
            (0.0, 0),
            (0.1, 100),
            (0.25, 250),
            (0.999, 999),
            (1.0, 1000),
            (7.0, 1000),
            (-1.0, 0),
            (f64::NAN, 0),
        ] {
            let sampler = Sampler::new(share);
            let taken = (0..1000).filter(|_| sampler.selects()).count();
            assert!((want - 1..=want).contains(&(taken as i64)), "{taken} of {want}");
        }
        let tenth = Sampler::new(0.1);
        let indices: Vec<_> = (0..40).filter(|_| tenth.selects()).collect();
        assert!(indices.windows(2).all(|pair| (9..=11).contains(&(pair[1] - pair[0]))), "{indices:?}");
    }
}

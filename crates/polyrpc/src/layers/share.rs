use std::sync::atomic::{AtomicU64, Ordering};

/// Takes a share of all calls, evenly spread: of a tenth, every tenth.
#[derive(Debug)]
pub(super) struct Share {
    /// In 2⁻³² of a call.
    share: u64,
    taken: AtomicU64,
}

impl Share {
    /// A share between nothing, 0, and everything, 1; what is no number is nothing.
    pub(super) fn new(share: f64) -> Self {
        // A conversion to an integer keeps to its bounds.
        Self { share: (share.clamp(0.0, 1.0) * WHOLE as f64) as u64, taken: AtomicU64::new(0) }
    }

    /// Whether this call is one of them.
    pub(super) fn takes(&self) -> bool {
        if self.share == WHOLE {
            return true;
        }
        let before = self.taken.fetch_add(self.share, Ordering::Relaxed);
        before / WHOLE != before.wrapping_add(self.share) / WHOLE
    }
}

const WHOLE: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_spread_evenly() {
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
            let share = Share::new(share);
            let taken = (0..1000).filter(|_| share.takes()).count();
            assert!((want - 1..=want).contains(&(taken as i64)), "{taken} of {want}");
        }
        let tenth = Share::new(0.1);
        let places: Vec<_> = (0..40).filter(|_| tenth.takes()).collect();
        assert!(places.windows(2).all(|pair| (9..=11).contains(&(pair[1] - pair[0]))), "{places:?}");
    }
}

//! Picks an upstream by shares.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash::{hash, mix};

/// Indexes of upstreams with their shares of the calls.
#[derive(Debug)]
pub(super) struct Shares {
    /// Cumulative shares up to each index.
    sums: Vec<u64>,
    next: AtomicU64,
}

impl Shares {
    pub(super) fn new(shares: impl IntoIterator<Item = u32>) -> Self {
        let mut sum = 0;
        let sums = shares.into_iter().map(|share| {
            sum += u64::from(share);
            sum
        });
        Self { sums: sums.collect(), next: AtomicU64::new(0) }
    }

    /// Returns the index for a key: the same one in every process. Without a key, picks by the shares.
    pub(super) fn index(&self, key: Option<&[u8]>) -> usize {
        let whole = self.sums.last().copied().unwrap_or(1).max(1);
        let number = match key {
            Some(key) => mix(hash(key)),
            None => mix(self.next.fetch_add(1, Ordering::Relaxed)),
        };
        let point = number % whole;
        self.sums.iter().position(|sum| point < *sum).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_with_and_without_keys() {
        let shares = Shares::new([95, 0, 5]);
        let mut counts = [[0; 3]; 2];
        for n in 0..10_000_u32 {
            counts[0][shares.index(None)] += 1;
            counts[1][shares.index(Some(n.to_string().as_bytes()))] += 1;
        }
        for [first, second, third] in counts {
            assert_eq!(second, 0);
            assert!((9_400..9_600).contains(&first) && (400..600).contains(&third), "{counts:?}");
        }
    }

    #[test]
    fn key_keeps_its_index() {
        let (one, other) = (Shares::new([1, 1, 1]), Shares::new([1, 1, 1]));
        other.index(None);
        for key in ["", "a", "user 17"] {
            assert_eq!(one.index(Some(key.as_bytes())), other.index(Some(key.as_bytes())));
        }
    }
}

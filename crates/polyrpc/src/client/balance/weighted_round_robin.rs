use std::sync::atomic::{AtomicU64, Ordering};

use super::weights::Weights;
use super::{Candidate, LoadBalancer, PickContext, Picker, available, rng};

/// See [`Policy::weighted_round_robin`](super::Policy::weighted_round_robin).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WeightedRoundRobin;

impl LoadBalancer for WeightedRoundRobin {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let weights = Weights::from_candidates(candidates);
        let total = weights.total();
        Box::new(WeightedRoundRobinPicker {
            stride: stride(total),
            position: AtomicU64::new(rng::below(total)),
            weights,
        })
    }
}

/// Stride that visits every unit of the ring once a lap. It is about the golden section of the ring, so that the picks
/// of any part of a lap are spread evenly. brpc's stride, a prime slightly above the average weight, returns to almost
/// the same units for a long time where weights are large.
fn stride(total: u64) -> u64 {
    if total <= 1 {
        return 0;
    }
    let mut stride = ((u128::from(total) * GOLDEN) >> 64) as u64;
    // The next one is near: among a few consecutive numbers, one has no divisor in common with the sum.
    while greatest_common_divisor(stride, total) != 1 {
        stride += 1;
    }
    stride
}

/// The golden section of 2^64.
const GOLDEN: u128 = 0x9e37_79b9_7f4a_7c15;

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

struct WeightedRoundRobinPicker {
    weights: Weights,
    stride: u64,
    position: AtomicU64,
}

impl WeightedRoundRobinPicker {
    fn next_index(&self) -> usize {
        let further = |position: u64| Some((position + self.stride) % self.weights.total());
        let (Ok(before) | Err(before)) =
            self.position.fetch_update(Ordering::Relaxed, Ordering::Relaxed, further);
        self.weights.at(before)
    }
}

impl Picker for WeightedRoundRobinPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        if self.weights.total() == 0 {
            return None;
        }
        available::first_drawn(context, || self.next_index())
            .or_else(|| available::by_weight(context, self.weights.iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stride_visits_every_unit_once() {
        for total in [1, 2, 3, 7, 30, 210, 1000] {
            let stride = stride(total);
            let mut units: Vec<_> = (0..total).map(|turn| turn * stride % total).collect();
            units.sort_unstable();
            assert!(units.into_iter().eq(0..total), "{total} units by {stride}");
        }
        assert_eq!(stride(0), 0);
        let most = u64::from(u32::MAX) * 10_000;
        assert_eq!(greatest_common_divisor(stride(most), most), 1);
    }
}

//! Fallback of a pick whose first choice is not available: draws again and, after [`DRAWS`] draws, scans all servers.
//! Draws cost little while most servers are healthy, and an unhealthy server's share is spread over all the others
//! instead of falling to one neighbour.

use super::{PickContext, rng};

/// Maximum number of draws: if half of the servers are unavailable, 255 of 256 calls find one by drawing.
pub(super) const DRAWS: usize = 8;

/// Returns the first drawn server that may take the call.
pub(super) fn first_drawn(context: &PickContext<'_>, mut draw: impl FnMut() -> usize) -> Option<usize> {
    (0..DRAWS).map(|_| draw()).find(|&index| context.is_eligible(index))
}

/// Picks among all servers that may take the call, with a probability proportional to weight. Servers of weight zero
/// are excluded.
pub(super) fn by_weight(
    context: &PickContext<'_>,
    weighted: impl IntoIterator<Item = (usize, u64)>,
) -> Option<usize> {
    let (mut chosen, mut total) = (None, 0);
    for (index, weight) in weighted {
        if weight > 0 && context.is_eligible(index) {
            total += weight;
            // Reservoir sampling: the previous choice is kept with the probability of the preceding weights.
            if rng::below(total) < weight {
                chosen = Some(index);
            }
        }
    }
    chosen
}

/// Picks any of `n` servers that may take the call; `at` maps a number to the index of its server.
pub(super) fn any_available(
    context: &PickContext<'_>,
    n: usize,
    at: impl Fn(usize) -> usize,
) -> Option<usize> {
    if n == 0 {
        return None;
    }
    first_drawn(context, || at(rng::index(n)))
        .or_else(|| by_weight(context, (0..n).map(|index| (at(index), 1))))
}

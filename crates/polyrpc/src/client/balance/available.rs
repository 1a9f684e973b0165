//! What a pick does where the server it came upon may not take the call: it draws again, and when that was in vain for a
//! while, looks at all of them. Draws cost no more than what they are made of as long as most servers are well, and leave
//! no neighbour with a sick server's whole share.

use super::{PickContext, chance};

/// How often a draw is made: if half of the servers may not take the call, 255 of 256 calls find one by drawing.
pub(super) const DRAWS: usize = 8;

/// The first drawn that may take the call.
pub(super) fn first_drawn(asked: &PickContext<'_>, mut draw: impl FnMut() -> usize) -> Option<usize> {
    (0..DRAWS).map(|_| draw()).find(|&place| asked.may_take(place))
}

/// One of all that may take the call, each as probable as it is heavy; those without weight are none.
pub(super) fn by_weight(
    asked: &PickContext<'_>,
    weighted: impl IntoIterator<Item = (usize, u64)>,
) -> Option<usize> {
    let (mut chosen, mut total) = (None, 0);
    for (place, weight) in weighted {
        if weight > 0 && asked.may_take(place) {
            total += weight;
            // The one before stays with the probability of what was before.
            if chance::below(total) < weight {
                chosen = Some(place);
            }
        }
    }
    chosen
}

/// Any of `n` servers that may take the call, if `at` tells their places.
pub(super) fn any_available(asked: &PickContext<'_>, n: usize, at: impl Fn(usize) -> usize) -> Option<usize> {
    if n == 0 {
        return None;
    }
    first_drawn(asked, || at(chance::place(n)))
        .or_else(|| by_weight(asked, (0..n).map(|index| (at(index), 1))))
}

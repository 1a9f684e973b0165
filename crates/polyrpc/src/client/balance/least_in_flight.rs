use super::{Candidate, LoadBalancer, PickContext, Picker, chance};

/// Server with the fewest of this client's calls in flight; any of those with the same number.
///
/// Each server gets new calls at the rate at which it answers, so calls of very different cost do not queue behind each
/// other. Among up to 32 servers the pick is exact. Of more, 32 are drawn and the best of them is taken, since reading
/// a thousand counts would take longer than they stay valid.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeastInFlight;

impl LoadBalancer for LeastInFlight {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        Box::new(LeastInFlightPicker(candidates.len()))
    }
}

const DRAWS: usize = 32;

struct LeastInFlightPicker(usize);

impl Picker for LeastInFlightPicker {
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        let Self(n) = *self;
        let drawn = (n > DRAWS).then(|| least(asked, (0..DRAWS).map(|_| chance::place(n))));
        drawn.flatten().or_else(|| least(asked, 0..n))
    }
}

fn least(asked: &PickContext<'_>, places: impl Iterator<Item = usize>) -> Option<usize> {
    let (mut least, mut alike) = (None, 0);
    for place in places {
        if !asked.may_take(place) {
            continue;
        }
        let calls = asked.candidates.get(place)?.load().in_flight();
        if least.is_none_or(|(_, fewest)| calls < fewest) {
            (least, alike) = (Some((place, calls)), 1);
        } else if least.is_some_and(|(_, fewest)| calls == fewest) {
            alike += 1;
            if chance::below(alike) == 0 {
                least = Some((place, calls));
            }
        }
    }
    least.map(|(place, _)| place)
}

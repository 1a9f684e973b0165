use super::{Candidate, LoadBalancer, PickContext, Picker, rng};

/// See [`Policy::least_in_flight`](super::Policy::least_in_flight).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeastInFlight;

impl LoadBalancer for LeastInFlight {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        Box::new(LeastInFlightPicker(candidates.len()))
    }
}

const DRAWS: usize = 32;

struct LeastInFlightPicker(usize);

impl Picker for LeastInFlightPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        let Self(n) = *self;
        let drawn = (n > DRAWS).then(|| least(context, (0..DRAWS).map(|_| rng::index(n))));
        drawn.flatten().or_else(|| least(context, 0..n))
    }
}

fn least(context: &PickContext<'_>, indices: impl Iterator<Item = usize>) -> Option<usize> {
    let (mut least, mut ties) = (None, 0);
    for index in indices {
        if !context.is_eligible(index) {
            continue;
        }
        let calls = context.candidates.get(index)?.load().in_flight();
        if least.is_none_or(|(_, fewest)| calls < fewest) {
            (least, ties) = (Some((index, calls)), 1);
        } else if least.is_some_and(|(_, fewest)| calls == fewest) {
            ties += 1;
            if rng::below(ties) == 0 {
                least = Some((index, calls));
            }
        }
    }
    least.map(|(index, _)| index)
}

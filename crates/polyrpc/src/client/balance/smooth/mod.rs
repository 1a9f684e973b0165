mod race;

use std::sync::{Mutex, PoisonError};

use self::race::Race;
use super::last::Last;
use super::weights::Weights;
use super::{Asked, Balance, Candidate, Pick, spare};

/// Turns by weight, as evenly mixed as can be: rpcx's `WeightedRoundRobin`.
///
/// At each turn every server gains its weight, the first of those that have gained most is chosen and pays the sum of
/// all weights. Weights of 5, 1 and 1 make `a a b a c a a`, over and over. A weight of zero gets nothing. A set of other
/// servers or weights begins anew.
///
/// rpcx makes a list of a whole round, which is as long as the weights are heavy; here the order is found turn by turn
/// (`Race`), in memory for each server and a short lock.
#[derive(Debug, Default)]
pub struct SmoothWeightedRoundRobin {
    last: Last<Smooth>,
}

impl SmoothWeightedRoundRobin {
    /// Begins with the heaviest server.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Balance for SmoothWeightedRoundRobin {
    fn over(&self, candidates: &[Candidate]) -> Box<dyn Pick> {
        let weights = Weights::of(candidates);
        let is_same = |last: &Smooth| last.weights == weights;
        Box::new(self.last.or_make(candidates, is_same, || Smooth::new(Weights::of(candidates))))
    }
}

pub(super) struct Smooth {
    weights: Weights,
    race: Mutex<Race>,
}

impl Smooth {
    pub(super) fn new(weights: Weights) -> Self {
        let race = Mutex::new(Race::new(weights.iter()));
        Self { weights, race }
    }
}

impl Pick for Smooth {
    fn pick(&self, asked: &Asked<'_>) -> Option<usize> {
        let mut race = self.race.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (0..spare::DRAWS).map_while(|_| race.next()).find(|&place| asked.may_take(place));
        drop(race);
        next.or_else(|| spare::by_weight(asked, self.weights.iter()))
    }
}

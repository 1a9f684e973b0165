use super::Candidate;

/// Cumulative weights of the servers.
#[derive(PartialEq, Eq)]
pub(super) struct Weights {
    /// End of each server's weight.
    cumulative: Box<[u64]>,
}

impl Weights {
    /// Reads the weights from the registry's attributes.
    pub(super) fn from_candidates(candidates: &[Candidate]) -> Self {
        Self::new(candidates.iter().map(|candidate| candidate.instance().attributes.weight()))
    }

    pub(super) fn new(weights: impl IntoIterator<Item = u32>) -> Self {
        let mut end = 0;
        let cumulative = weights.into_iter().map(|weight| {
            end += u64::from(weight);
            end
        });
        Self { cumulative: cumulative.collect() }
    }

    /// Sum of all weights: the number of units.
    pub(super) fn total(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or(0)
    }

    /// Returns the server that a unit belongs to. Servers of weight zero own no unit.
    pub(super) fn at(&self, unit: u64) -> usize {
        self.cumulative.partition_point(|&end| end <= unit)
    }

    /// Iterates over all servers with their weights.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        let begins = [0].into_iter().chain(self.cumulative.iter().copied());
        self.cumulative.iter().zip(begins).map(|(end, begin)| end - begin).enumerate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_as_many_units_as_its_weight() {
        let weights = Weights::new([0, 2, 0, 1, 0]);
        assert_eq!((0..weights.total()).map(|unit| weights.at(unit)).collect::<Vec<_>>(), [1, 1, 3]);
        assert_eq!(weights.iter().collect::<Vec<_>>(), [(0, 0), (1, 2), (2, 0), (3, 1), (4, 0)]);
    }

    #[test]
    fn empty_set_has_no_weight() {
        assert_eq!(Weights::new([]).total(), 0);
        assert_eq!(Weights::new([]).iter().count(), 0);
    }
}

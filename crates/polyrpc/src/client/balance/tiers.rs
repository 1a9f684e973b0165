use super::{PickContext, Picker, available};

/// Servers in tiers of preference: any available server of the best tier, else of the second, and so on.
pub(super) struct Tiers(Vec<Vec<usize>>);

impl Tiers {
    /// Groups servers by rank; a lower rank is preferred.
    pub(super) fn from_ranks(ranks: impl Iterator<Item = (usize, f64)>) -> Self {
        let mut ranked: Vec<_> = ranks.collect();
        ranked.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        let tiers = ranked.chunk_by(|(_, one), (_, other)| one == other);
        Self(tiers.map(|tier| tier.iter().map(|&(index, _)| index).collect()).collect())
    }
}

impl Picker for Tiers {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        self.0.iter().find_map(|tier| available::any_available(context, tier.len(), |index| tier[index]))
    }
}

use std::fmt;
use std::sync::Arc;

use super::assignment::PartitionIndex;
use super::gather::CompletionBounds;
use super::parallel::ParallelCombo;
use super::partitions::Partitions;
use super::sub::{Map, Merger, SubChannel};
use crate::client::Result;

/// Settings shared by all partitions.
#[derive(Default)]
pub(super) struct Common {
    pub(super) map: Option<Arc<Map>>,
    pub(super) merge: Option<Arc<Merger>>,
    pub(super) bounds: CompletionBounds,
}

impl Common {
    /// Creates a parallel client over the servers of all partitions.
    pub(super) fn parallel(&self, partitions: &Arc<Partitions>, of: usize) -> Result<ParallelCombo> {
        let subs = (0..of).map(|index| {
            let mut sub = SubChannel::new(partitions.client(PartitionIndex { index, count: of })?);
            sub.map = self.map.clone().unwrap_or(sub.map);
            sub.merge = self.merge.clone().unwrap_or(sub.merge);
            Ok(sub)
        });
        let subs: Vec<_> = subs.collect::<Result<_>>()?;
        Ok(ParallelCombo::new(subs, self.bounds))
    }
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

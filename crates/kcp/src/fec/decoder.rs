use std::collections::VecDeque;
use std::sync::Arc;

use super::Code;
use crate::config::Shards;

/// Recovers lost datagrams.
///
/// It keeps the shards of a few groups at most, so that the memory that a peer can occupy is bounded: [`MAX_GROUPS`] ·
/// (data + parity) datagrams.
#[derive(Debug)]
pub(crate) struct Decoder {
    shards: Shards,
    code: Arc<Code>,
    /// The groups received most recently, the latest last.
    groups: VecDeque<Group>,
}

#[derive(Debug)]
struct Group {
    /// Sequence number of its first shard.
    begin: u32,
    /// By position in the group. Nothing is kept once all data shards were received.
    kept: Vec<Option<Vec<u8>>>,
    is_whole: bool,
}

impl Decoder {
    pub(crate) fn new(shards: Shards, code: Arc<Code>) -> Self {
        Self { shards, code, groups: VecDeque::new() }
    }

    /// Adds a shard, and returns those that can be recovered now.
    pub(crate) fn take(&mut self, seqid: u32, is_data: bool, shard: &[u8]) -> Vec<Vec<u8>> {
        let size = u32::from(self.shards.data) + u32::from(self.shards.parity);
        let index = seqid % size;
        let is_ours = is_data == (index < u32::from(self.shards.data)) && seqid < u32::MAX / size * size;
        if !is_ours {
            // The peer's groups have another layout: nothing can be recovered.
            return Vec::new();
        }
        let (data, code) = (usize::from(self.shards.data), self.code.clone());
        let group = self.group(seqid - index, size as usize);
        match group.kept.get_mut(index as usize) {
            Some(slot @ None) => *slot = Some(shard.to_vec()),
            _ => return Vec::new(),
        }
        if group.kept.iter().flatten().count() < data {
            return Vec::new();
        }
        let is_complete = group.kept.iter().take(data).all(Option::is_some);
        let recovered = if is_complete { None } else { code.reconstruct(&group.kept) };
        group.is_whole = true;
        group.kept = Vec::new();
        recovered.unwrap_or_default()
    }

    /// Discards groups that have been incomplete for too long.
    pub(crate) fn shrink(&mut self) {
        self.groups.retain(|group| group.is_whole);
        self.groups.shrink_to_fit();
    }

    fn group(&mut self, begin: u32, size: usize) -> &mut Group {
        let index = self.groups.iter().position(|group| group.begin == begin).unwrap_or_else(|| {
            if self.groups.len() >= MAX_GROUPS {
                self.groups.pop_front();
            }
            self.groups.push_back(Group { begin, kept: vec![None; size], is_whole: false });
            self.groups.len() - 1
        });
        &mut self.groups[index]
    }
}

/// As many as `kcp-go` keeps (`sess.go: rxFECMulti`), and one for the complete ones.
const MAX_GROUPS: usize = 4;

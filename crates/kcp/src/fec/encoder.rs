use std::sync::Arc;

use super::{Code, DATA, HEADER, OVERHEAD, PARITY};
use crate::config::Shards;

/// Adds parity to outgoing datagrams.
#[derive(Debug)]
pub(crate) struct Encoder {
    shards: Shards,
    code: Arc<Code>,
    next: u32,
    /// Number of data shards of the group that were sent.
    count: usize,
    /// Parity so far: it is updated with each data shard, so that none need be kept.
    parity: Vec<Vec<u8>>,
}

impl Encoder {
    pub(crate) fn new(shards: Shards, code: Arc<Code>) -> Self {
        Self { shards, code, next: 0, count: 0, parity: Vec::new() }
    }

    /// Writes the header into the space before the segments. Returns whether parity follows.
    pub(crate) fn protect(&mut self, datagram: &mut [u8]) -> bool {
        let size = datagram.len().saturating_sub(HEADER) as u16;
        let header = datagram.first_chunk_mut::<OVERHEAD>().expect("there is room for the header");
        header[..4].copy_from_slice(&self.next.to_le_bytes());
        header[4..6].copy_from_slice(&DATA.to_le_bytes());
        header[6..].copy_from_slice(&size.to_le_bytes());
        self.next += 1;
        self.contribute(&datagram[HEADER..]);
        self.count == usize::from(self.shards.data)
    }

    /// Passes the parity of the completed group to `put`, each with its header.
    pub(crate) fn parity(&mut self, mut put: impl FnMut([u8; HEADER], &[u8])) {
        // Sequence numbers wrap at a multiple of the group's size, so that no group is split.
        let size = u32::from(self.shards.data) + u32::from(self.shards.parity);
        let most = u32::MAX / size * size;
        for parity in &mut self.parity {
            let mut header = [0; HEADER];
            header[..4].copy_from_slice(&self.next.to_le_bytes());
            header[4..].copy_from_slice(&PARITY.to_le_bytes());
            put(header, parity);
            parity.clear();
            self.next = (self.next + 1) % most;
        }
        self.count = 0;
    }

    fn contribute(&mut self, shard: &[u8]) {
        self.parity.resize_with(usize::from(self.shards.parity), Vec::new);
        for parity in &mut self.parity {
            parity.resize(parity.len().max(shard.len()), 0);
        }
        self.code.add(self.count, shard, &mut self.parity);
        self.count += 1;
    }
}

//! Cache of parsed heads: a peer that calls the same methods repeats them.

use std::sync::Arc;

use crate::grpc::request::Request;
use crate::http::h2::hpack::Fields;

/// Parsed forms of the last header lists. A repeated list is the same allocation, not only equal.
#[derive(Debug, Default)]
pub(super) struct HeadCache {
    heads: [Option<(Arc<Fields>, Arc<Request>)>; KEPT],
    next: usize,
    /// Size of the cached lists in bytes.
    held: usize,
}

const KEPT: usize = 4;

/// Most bytes that a connection keeps of heads.
const MAX_HELD: usize = 32 << 10;

impl HeadCache {
    /// Returns the parsed form of a list if it is cached.
    pub(super) fn find(&self, fields: &Arc<Fields>) -> Option<&Arc<Request>> {
        let same = |known: &&(Arc<Fields>, Arc<Request>)| Arc::ptr_eq(&known.0, fields);
        self.heads.iter().flatten().find(same).map(|(_, request)| request)
    }

    /// Caches the parsed form of a list, if the decoder has cached the list itself: otherwise it is never found again.
    pub(super) fn add(&mut self, fields: &Arc<Fields>, request: &Arc<Request>) {
        if Arc::strong_count(fields) == 1 {
            return;
        }
        let size = footprint(fields, request);
        if self.held + size > MAX_HELD {
            *self = Self::default();
        }
        let replaced = self.heads[self.next].replace((fields.clone(), request.clone()));
        self.held += size;
        self.held -= replaced.map_or(0, |(fields, request)| footprint(&fields, &request));
        self.next = (self.next + 1) % KEPT;
    }

    /// Returns the number of cached bytes.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns the same number, recounted.
    pub(super) fn recount(&self) -> usize {
        self.heads.iter().flatten().map(|(fields, request)| footprint(fields, request)).sum()
    }
}

fn footprint(fields: &Fields, request: &Request) -> usize {
    fields.footprint() + request.footprint()
}

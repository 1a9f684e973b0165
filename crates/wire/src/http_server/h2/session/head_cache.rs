//! The heads that were understood last: a peer that calls the same methods repeats them.

use std::sync::Arc;

use crate::grpc::request::Request;
use crate::http::h2::hpack::Fields;

/// What the last header lists mean. A list that comes again is the same, not only equal.
#[derive(Debug, Default)]
pub(super) struct HeadCache {
    heads: [Option<(Arc<Fields>, Arc<Request>)>; KEPT],
    next: usize,
    /// Bytes that they take.
    held: usize,
}

const KEPT: usize = 4;

impl HeadCache {
    /// What a list means, if it came before.
    pub(super) fn find(&self, fields: &Arc<Fields>) -> Option<&Arc<Request>> {
        let same = |known: &&(Arc<Fields>, Arc<Request>)| Arc::ptr_eq(&known.0, fields);
        self.heads.iter().flatten().find(same).map(|(_, request)| request)
    }

    /// Remembers what a list means, unless it is a large one.
    pub(super) fn add(&mut self, fields: &Arc<Fields>, request: &Arc<Request>) {
        if !fields.may_be_kept() {
            return;
        }
        let replaced = self.heads[self.next].replace((fields.clone(), request.clone()));
        self.held += footprint(fields, request);
        self.held -= replaced.map_or(0, |(fields, request)| footprint(&fields, &request));
        self.next = (self.next + 1) % KEPT;
    }

    /// Bytes that are remembered.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// The same, counted anew.
    pub(super) fn audited(&self) -> usize {
        self.heads.iter().flatten().map(|(fields, request)| footprint(fields, request)).sum()
    }
}

fn footprint(fields: &Fields, request: &Request) -> usize {
    fields.footprint() + request.footprint()
}

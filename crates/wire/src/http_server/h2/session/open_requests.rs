//! The incomplete requests of a connection, and their memory use.

use std::collections::BTreeMap;

use super::Incoming;

/// Incomplete requests, by stream.
#[derive(Debug, Default)]
pub(in crate::http_server::h2) struct OpenRequests {
    requests: BTreeMap<u32, Incoming>,
    /// Total size in bytes.
    held: usize,
    /// Number of requests with an incomplete message; each has a running timer.
    incomplete: usize,
}

impl OpenRequests {
    pub(super) fn insert(&mut self, stream: u32, incoming: Incoming) {
        self.remove(stream);
        self.held += incoming.held();
        self.incomplete += usize::from(incoming.is_incomplete());
        self.requests.insert(stream, incoming);
    }

    pub(super) fn remove(&mut self, stream: u32) -> Option<Incoming> {
        let incoming = self.requests.remove(&stream)?;
        self.held -= incoming.held();
        self.incomplete -= usize::from(incoming.is_incomplete());
        Some(incoming)
    }

    pub(super) fn get(&self, stream: u32) -> Option<&Incoming> {
        self.requests.get(&stream)
    }

    /// Changes a request, if it exists.
    pub(super) fn change<R>(&mut self, stream: u32, change: impl FnOnce(&mut Incoming) -> R) -> Option<R> {
        let incoming = self.requests.get_mut(&stream)?;
        let before = (incoming.held(), usize::from(incoming.is_incomplete()));
        let result = change(incoming);
        self.held = self.held - before.0 + incoming.held();
        self.incomplete = self.incomplete - before.1 + usize::from(incoming.is_incomplete());
        Some(result)
    }

    /// Iterates over the requests, without updating the counters.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Incoming)> {
        self.requests.iter_mut().map(|(stream, incoming)| (*stream, incoming))
    }

    /// Returns the total size of all requests in bytes.
    pub(in crate::http_server::h2) fn held(&self) -> usize {
        self.held
    }

    /// Whether a request has an incomplete message.
    pub(super) fn has_incomplete(&self) -> bool {
        self.incomplete > 0
    }

    /// Returns the requests by stream. Asserts that the counters are correct.
    pub(in crate::http_server::h2) fn audit(&self) -> &BTreeMap<u32, Incoming> {
        let held: usize = self.requests.values().map(Incoming::held).sum();
        assert_eq!(self.held, held, "bytes of requests");
        let incomplete = self.requests.values().filter(|incoming| incoming.is_incomplete()).count();
        assert_eq!(self.incomplete, incomplete, "incomplete requests");
        &self.requests
    }
}

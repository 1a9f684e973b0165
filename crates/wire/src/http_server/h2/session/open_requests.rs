//! The requests of a connection of which more may come, and what they hold.

use std::collections::BTreeMap;

use super::Incoming;

/// Requests of which more may come, by their streams.
#[derive(Debug, Default)]
pub(in crate::http_server::h2) struct OpenRequests {
    requests: BTreeMap<u32, Incoming>,
    /// Bytes that all of them hold.
    held: usize,
    /// How many of them have a message that is not whole: a clock runs for each.
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

    /// Changes a request, if it is here.
    pub(super) fn change<R>(&mut self, stream: u32, change: impl FnOnce(&mut Incoming) -> R) -> Option<R> {
        let incoming = self.requests.get_mut(&stream)?;
        let before = (incoming.held(), usize::from(incoming.is_incomplete()));
        let result = change(incoming);
        self.held = self.held - before.0 + incoming.held();
        self.incomplete = self.incomplete - before.1 + usize::from(incoming.is_incomplete());
        Some(result)
    }

    /// The requests, where nothing is changed that is counted.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Incoming)> {
        self.requests.iter_mut().map(|(stream, incoming)| (*stream, incoming))
    }

    /// Bytes that all requests hold.
    pub(in crate::http_server::h2) fn held(&self) -> usize {
        self.held
    }

    /// Whether a request has a message that is not whole.
    pub(super) fn has_incomplete(&self) -> bool {
        self.incomplete > 0
    }

    /// The requests by their streams. Asserts that what is counted adds up.
    pub(in crate::http_server::h2) fn audited(&self) -> &BTreeMap<u32, Incoming> {
        let held: usize = self.requests.values().map(Incoming::held).sum();
        assert_eq!(self.held, held, "bytes of requests");
        let incomplete = self.requests.values().filter(|incoming| incoming.is_incomplete()).count();
        assert_eq!(self.incomplete, incomplete, "incomplete requests");
        &self.requests
    }
}

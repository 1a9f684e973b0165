use std::task::Poll;
use std::time::Instant;

use super::CallKey;
use super::cell::run_marked;
use super::label::{self, run_labelled};
use super::registry::{Entry, RegistryEntry};
use crate::call::Peer;

/// A call that is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct TrackedCall {
    key: CallKey,
    /// Whether its polls are those of a server's handler.
    is_served: bool,
    began: Instant,
    peer: Option<Peer>,
    /// Its entry in the list, once it has had to wait.
    entered: Option<RegistryEntry>,
}

impl TrackedCall {
    pub(crate) fn new(key: CallKey, is_served: bool, began: Instant, peer: Option<Peer>) -> Self {
        Self { key, is_served, began, peer, entered: None }
    }

    /// Runs the steps before the first poll: the request is decoded, and a blocking method is passed to another thread,
    /// which then [carries](super::CarriedLabel) the label of the call.
    #[inline]
    pub(crate) fn start<T>(&self, is_blocking: bool, start: impl FnOnce() -> T) -> T {
        // A mark has a cost, and is not read otherwise.
        if is_blocking || label::are_wanted() { self.run(start) } else { start() }
    }

    /// Polls the call. It is entered in the list once it has to wait.
    pub(crate) fn poll<T>(&mut self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let polled = self.run(poll);
        if polled.is_pending() && self.entered.is_none() {
            let entry = Entry { key: self.key, peer: self.peer.take(), began: self.began };
            self.entered = Some(RegistryEntry::new(entry));
        }
        polled
    }

    /// Runs work of the call. If it is a handler's, this thread is marked with the call meanwhile.
    #[inline]
    fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        match self.is_served {
            true => {
                let index = self.entered.as_ref().map(RegistryEntry::combined_index);
                run_marked(self.key, index, || run_labelled(self.key, work))
            }
            false => work(),
        }
    }
}

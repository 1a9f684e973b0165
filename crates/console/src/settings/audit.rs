//! The history of changes.

use std::collections::VecDeque;
use std::time::{Instant, SystemTime};

/// A change of a setting.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) id: u64,
    pub(crate) at: SystemTime,
    /// Its author.
    pub(crate) author: String,
    pub(crate) name: String,
    pub(crate) old: String,
    pub(crate) new: String,
    /// When the old value is restored.
    pub(crate) until: Option<Instant>,
    /// Whether both values are hidden on pages.
    pub(crate) secret: bool,
}

/// The last changes.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// The latest first.
    changes: VecDeque<Change>,
    next: u64,
}

/// How many changes are kept.
const MAX_CHANGES: usize = 1024;

impl Audit {
    /// Records a change; returns it with its number.
    pub(super) fn record(&mut self, mut change: Change) -> Change {
        self.next += 1;
        change.id = self.next;
        // A later change replaces the pending expiry.
        for earlier in self.changes.iter_mut().filter(|earlier| earlier.name == change.name) {
            earlier.until = None;
        }
        self.changes.push_front(change.clone());
        self.changes.truncate(MAX_CHANGES);
        change
    }

    /// Whether a change of a setting expires.
    pub(super) fn expects_end(&self, name: &str) -> bool {
        self.changes.iter().any(|change| change.name == name && change.until.is_some())
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter()
    }

    pub(super) fn get(&self, id: u64) -> Option<&Change> {
        self.changes.iter().find(|change| change.id == id)
    }

    /// Takes the expiry off the changes that have expired, and returns them.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<Change> {
        let expired = self.changes.iter_mut().filter(|change| change.until.is_some_and(|until| until <= now));
        expired
            .map(|change| {
                change.until = None;
                change.clone()
            })
            .collect()
    }
}

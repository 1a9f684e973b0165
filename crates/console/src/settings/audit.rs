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
    /// When the value `restored` is set.
    pub(crate) until: Option<Instant>,
    /// The old value, or the last one that was not temporary.
    pub(crate) restored: String,
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
        // A later change replaces the pending expiry. If the replaced value was temporary, it is not restored: nothing
        // would end it then.
        for earlier in self.changes.iter_mut().filter(|earlier| earlier.name == change.name) {
            if earlier.until.take().is_some() && earlier.new == change.old {
                change.restored.clone_from(&earlier.restored);
            }
        }
        self.changes.push_front(change.clone());
        // A change that is still to expire stays; each setting has one at most.
        while self.changes.len() > MAX_CHANGES
            && let Some(oldest) = self.changes.iter().rposition(|change| change.until.is_none())
        {
            self.changes.remove(oldest);
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn pending_expiry_survives_many_other_changes() {
        let change = |name: &str, until| Change {
            id: 0,
            at: SystemTime::UNIX_EPOCH,
            author: "me".to_owned(),
            name: name.to_owned(),
            old: "1".to_owned(),
            new: "2".to_owned(),
            until,
            restored: "1".to_owned(),
            secret: false,
        };
        let (mut audit, now) = (Audit::default(), Instant::now());
        audit.record(change("debug", Some(now + Duration::from_secs(60))));
        (0..2 * MAX_CHANGES).for_each(|_| drop(audit.record(change("other", None))));
        assert_eq!(audit.changes().count(), MAX_CHANGES);
        let expired = audit.take_expired(now + Duration::from_secs(60));
        assert_eq!(expired.iter().map(|change| change.name.as_str()).collect::<Vec<_>>(), ["debug"]);
    }
}

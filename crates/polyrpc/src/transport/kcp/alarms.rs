use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use polyrpc_kcp::Millis;
use tokio::sync::Notify;

/// When to look after which conversation.
///
/// Each has one place here at most that counts, as early as it needs to be or earlier: what moves an alarm later moves
/// nothing here, so that a request and its answer cost next to nothing.
#[derive(Debug)]
pub(super) struct Alarms<Conversation> {
    begin: Instant,
    set: Mutex<BinaryHeap<Alarm<Conversation>>>,
    /// Told when there is one before all others.
    pub(super) earlier: Notify,
}

#[derive(Debug)]
struct Alarm<Conversation> {
    at: Instant,
    /// It may have ended, and need not be kept for this.
    conversation: Weak<Conversation>,
}

impl<Conversation> Alarms<Conversation> {
    pub(super) fn new() -> Self {
        Self { begin: Instant::now(), set: Mutex::default(), earlier: Notify::new() }
    }

    /// The time as conversations count it.
    pub(super) fn now(&self) -> Millis {
        Millis(self.begin.elapsed().as_millis() as u32)
    }

    /// Sets an alarm.
    pub(super) fn set(&self, at: Millis, conversation: &Arc<Conversation>) {
        let wait = at.since(self.now()).max(0).unsigned_abs();
        let at = Instant::now() + Duration::from_millis(u64::from(wait));
        let mut set = self.lock();
        let is_first = set.peek().is_none_or(|first| at < first.at);
        if set.len() == set.capacity() {
            // Conversations that have ended keep their memory while their alarms wait. With half of the room free
            // afterwards, the cost of looking for them is shared by as many alarms as there are.
            set.retain(|alarm| alarm.conversation.strong_count() > 0);
            let live = set.len();
            set.reserve(live.max(LEAST));
        }
        set.push(Alarm { at, conversation: Arc::downgrade(conversation) });
        drop(set);
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// When the next rings.
    pub(super) fn next(&self) -> Option<Instant> {
        self.lock().peek().map(|first| first.at)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// One whose alarm rings.
    pub(super) fn ringing(&self) -> Option<Arc<Conversation>> {
        let mut set = self.lock();
        while set.peek().is_some_and(|first| first.at <= Instant::now()) {
            let conversation = set.pop().and_then(|alarm| alarm.conversation.upgrade());
            if conversation.is_some() {
                return conversation;
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Alarm<Conversation>>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Alarms for which there is room at least.
const LEAST: usize = 16;

/// The earliest is the greatest, and on top of the heap.
impl<Conversation> Ord for Alarm<Conversation> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl<Conversation> PartialOrd for Alarm<Conversation> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<Conversation> PartialEq for Alarm<Conversation> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<Conversation> Eq for Alarm<Conversation> {}

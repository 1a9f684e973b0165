use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use polyrpc_kcp::Millis;
use tokio::sync::Notify;

use crate::contention::{Mutex, MutexGuard};

/// Timers of the conversations of a socket.
///
/// A conversation has a timer that is due when it is needed or earlier: postponing a timer changes nothing here, so
/// that a request and its response cost next to nothing. [`SetTimers`] are those of one conversation.
#[derive(Debug)]
pub(super) struct Timers<Conversation> {
    begin: Instant,
    set: Mutex<BinaryHeap<Timer<Conversation>>>,
    /// Notified when a new alarm is due before all others.
    pub(super) earlier: Notify,
}

#[derive(Debug)]
struct Timer<Conversation> {
    at: Instant,
    /// Weak: it may have ended, and need not be kept alive for its alarm.
    conversation: Weak<Conversation>,
}

impl<Conversation> Timers<Conversation> {
    pub(super) fn new() -> Self {
        Self { begin: Instant::now(), set: Mutex::default(), earlier: Notify::new() }
    }

    /// Returns the time as conversations count it.
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
            // Ended conversations keep their memory while their timers wait. Since half of the capacity is free
            // afterwards, the cost of the search is amortized over as many timers as there are.
            set.retain(|alarm| alarm.conversation.strong_count() > 0);
            let live = set.len();
            set.reserve(live.max(MIN_CAPACITY));
        }
        set.push(Timer { at, conversation: Arc::downgrade(conversation) });
        drop(set);
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// Returns when the next alarm is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.lock().peek().map(|first| first.at)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns a conversation whose alarm is due.
    pub(super) fn pop_expired(&self) -> Option<Arc<Conversation>> {
        let mut set = self.lock();
        while set.peek().is_some_and(|first| first.at <= Instant::now()) {
            let conversation = set.pop().and_then(|alarm| alarm.conversation.upgrade());
            if conversation.is_some() {
                return conversation;
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Timer<Conversation>>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the timers of one conversation are due.
///
/// A timer is only set if it is due before all others. Later ones are kept when it expires, so that they are not set
/// again: a busy conversation would otherwise have another timer of half a minute for each delayed acknowledgement.
#[derive(Debug, Default)]
pub(super) struct SetTimers {
    /// The earliest is the last.
    due: Vec<Millis>,
}

impl SetTimers {
    /// Records that a timer is needed at this time. Returns whether it must be set.
    pub(super) fn add(&mut self, at: Millis) -> bool {
        let is_first = self.due.last().is_none_or(|first| at.since(*first) < 0);
        if is_first {
            self.due.push(at);
        }
        is_first
    }

    /// Forgets those that are due. Returns whether there were any.
    pub(super) fn expire(&mut self, now: Millis) -> bool {
        let before = self.due.len();
        while self.due.pop_if(|first| now.since(*first) >= 0).is_some() {}
        self.due.len() < before
    }
}

/// Minimum capacity for timers.
const MIN_CAPACITY: usize = 16;

/// The earliest is the greatest, and on top of the heap.
impl<Conversation> Ord for Timer<Conversation> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl<Conversation> PartialOrd for Timer<Conversation> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<Conversation> PartialEq for Timer<Conversation> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<Conversation> Eq for Timer<Conversation> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_conversation_has_few_timers_at_once() {
        let (mut timers, mut set, mut rings) = (SetTimers::default(), Vec::new(), 0);
        for now in (u32::MAX - 50_000..u32::MAX).chain(0..50_000).map(Millis) {
            // Every 50 ms something arrives: its acknowledgement is due after 40 ms, and a probe after half a minute.
            let phase = now.0 % 50;
            let next = now.after(if phase < 40 { 40 - phase } else { 30_000 });
            set.retain(|at: &Millis| now.since(*at) < 0);
            rings += u32::from(timers.expire(now));
            if timers.add(next) {
                set.push(next);
            }
            assert!(set.len() <= 3, "{} timers", set.len());
            let first = set.iter().copied().reduce(|a, b| if a.since(b) < 0 { a } else { b });
            assert!(first.is_some_and(|first| first.since(next) <= 0), "none is due when one is needed");
        }
        assert!((2000..=2100).contains(&rings), "{rings}");
    }
}

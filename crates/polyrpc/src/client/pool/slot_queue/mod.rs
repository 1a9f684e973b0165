use std::collections::BTreeMap;
use std::mem;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use crate::contention::{Mutex, MutexGuard};

/// Calls that wait for a slot on a connection, in the order of arrival.
///
/// While calls wait, a free slot is handed to the first of them, which is then woken. Slots that are free together are
/// handed out together, so a batch of replies wakes as many calls. The first call may be asked to connect meanwhile; it
/// waits for a slot as the others do.
pub(super) struct SlotQueue<S> {
    state: Mutex<QueueState<S>>,
    /// Copy of `waiting.len()` that is read without the lock.
    waiting_count: AtomicUsize,
}

struct QueueState<S> {
    /// Ticket of the next call.
    next: u64,
    waiting: BTreeMap<u64, Waker>,
    /// Slots whose calls have not taken them yet.
    handed_out: BTreeMap<u64, S>,
    /// The call that connects. It may have been given a slot meanwhile.
    connecting: Option<u64>,
}

/// Number of a call in the queue: its position in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// Permission that the queue grants to a waiting call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Grant<S> {
    Slot(S),
    /// The call must open a connection; the others keep waiting.
    Connect,
}

/// Slot or task to connect that a call passes to the next one when it leaves the queue.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the slot or the task to connect must be passed to another call"]
pub(super) struct Leftover<S> {
    /// Slot that it did not take.
    pub(super) slot: Option<S>,
    /// Whether it was to connect. Another call must be asked now.
    pub(super) was_connecting: bool,
}

impl<S> Default for SlotQueue<S> {
    fn default() -> Self {
        let state =
            QueueState { next: 0, waiting: BTreeMap::new(), handed_out: BTreeMap::new(), connecting: None };
        Self { state: Mutex::new(state), waiting_count: AtomicUsize::new(0) }
    }
}

impl<S> SlotQueue<S> {
    /// Whether no call waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting_count.load(Ordering::Relaxed) == 0
    }

    /// Adds a call, which is woken by `waker`. Returns its ticket, and whether no other call waits: slots may be free
    /// then.
    pub(super) fn join(&self, waker: Waker) -> (Ticket, bool) {
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        let is_first = state.waiting.is_empty();
        state.waiting.insert(ticket, waker);
        self.update_waiting_count(&state);
        (Ticket(ticket), is_first)
    }

    /// Takes the slot of a call, or registers the waker.
    pub(super) fn poll_slot(&self, ticket: Ticket, waker: &Waker) -> Poll<S> {
        let mut state = self.lock();
        if let Some(slot) = state.handed_out.remove(&ticket.0) {
            return Poll::Ready(slot);
        }
        let known = state.waiting.get_mut(&ticket.0).filter(|known| !known.will_wake(waker));
        let former = known.map(|known| mem::replace(known, waker.clone()));
        drop(state);
        // Outside the lock: dropping a waker may drop a task, whose call then leaves this queue.
        drop(former);
        Poll::Pending
    }

    /// As [`poll_slot`](Self::poll_slot); also ready if the call is to connect.
    pub(super) fn poll_grant(&self, ticket: Ticket, waker: &Waker) -> Poll<Grant<S>> {
        match self.poll_slot(ticket, waker) {
            Poll::Ready(slot) => Poll::Ready(Grant::Slot(slot)),
            Poll::Pending if self.is_connecting(ticket) => Poll::Ready(Grant::Connect),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether the call is to connect, or was until it got a slot.
    pub(super) fn is_connecting(&self, ticket: Ticket) -> bool {
        self.lock().connecting == Some(ticket.0)
    }

    /// Removes a call.
    pub(super) fn leave(&self, ticket: Ticket) -> Leftover<S> {
        let mut state = self.lock();
        let waker = state.waiting.remove(&ticket.0);
        let slot = state.handed_out.remove(&ticket.0);
        let was_connecting = state.connecting.take_if(|connecting| *connecting == ticket.0).is_some();
        self.update_waiting_count(&state);
        drop(state);
        // Outside the lock, as in `poll_slot`.
        drop(waker);
        Leftover { slot, was_connecting }
    }

    /// Changes the calls that wait under the queue's lock, and wakes those that were granted something afterwards.
    ///
    /// `update` must not drop a slot: its connection could call back into this queue, and deadlock.
    pub(super) fn with_waiting_calls(&self, update: impl FnOnce(&mut WaitingCalls<'_, S>)) {
        let mut state = self.lock();
        let mut calls = WaitingCalls { state: &mut state, woken: Vec::new() };
        update(&mut calls);
        let woken = calls.woken;
        self.update_waiting_count(&state);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    fn update_waiting_count(&self, state: &QueueState<S>) {
        self.waiting_count.store(state.waiting.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calls of a queue that wait, while it is locked.
pub(super) struct WaitingCalls<'q, S> {
    state: &'q mut QueueState<S>,
    woken: Vec<Waker>,
}

impl<S> WaitingCalls<'_, S> {
    /// Number of calls that wait.
    pub(super) fn len(&self) -> usize {
        self.state.waiting.len()
    }

    /// Hands out this number of slots, at most one for each call.
    pub(super) fn hand_out(&mut self, slots: usize, slot: impl Fn() -> S) {
        self.woken.reserve(slots.min(self.len()));
        for _ in 0..slots {
            let Some((ticket, waker)) = self.state.waiting.pop_first() else { return };
            self.state.handed_out.insert(ticket, slot());
            self.woken.push(waker);
        }
    }

    /// Asks the first call to connect, unless one connects already.
    pub(super) fn let_first_connect(&mut self) {
        if self.state.connecting.is_some() {
            return;
        }
        if let Some((ticket, waker)) = self.state.waiting.first_key_value() {
            self.state.connecting = Some(*ticket);
            self.woken.push(waker.clone());
        }
    }

    /// Wakes the call that connects, if it still waits.
    pub(super) fn wake_connecting(&mut self) {
        let waker = self.state.connecting.and_then(|ticket| self.state.waiting.get(&ticket));
        self.woken.extend(waker.cloned());
    }
}

#[cfg(test)]
mod tests;

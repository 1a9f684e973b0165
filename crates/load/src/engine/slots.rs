//! Calls in flight on one thread. Their futures are reused in place and polled only when they were woken, so that a
//! call costs neither an allocation nor a task.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Slots of calls, some of them free.
pub(crate) struct Slots<F> {
    slots: Vec<Slot<F>>,
    free: Vec<u32>,
    wakeups: Arc<Wakeups>,
    /// Slots that were woken, taken from the queue.
    woken: Vec<u32>,
    in_flight: usize,
}

/// Holds one call at a time.
struct Slot<F> {
    call: Pin<Box<Option<F>>>,
    waker: Waker,
    times: CallTimes,
}

/// Times of a call in flight, in nanoseconds of the run's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallTimes {
    pub(crate) index: u64,
    pub(crate) method: usize,
    /// When the call was due.
    pub(crate) planned: u64,
    /// When it could be sent: after the planned time by as long as every slot was in use.
    pub(crate) sendable: u64,
    pub(crate) sent: u64,
    pub(crate) is_measured: bool,
}

impl<F: Future> Slots<F> {
    pub(crate) fn new(wakeups: Arc<Wakeups>) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), wakeups, woken: Vec::new(), in_flight: 0 }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes a free slot, or creates one if there are fewer than `limit`.
    pub(crate) fn take(&mut self, limit: usize) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = u32::try_from(self.slots.len()).ok().filter(|slot| (*slot as usize) < limit)?;
        let waker = Waker::from(Arc::new(SlotWaker { slot, wakeups: self.wakeups.clone() }));
        self.slots.push(Slot { call: Box::pin(None), waker, times: CallTimes::default() });
        Some(slot)
    }

    /// Returns a slot without a call.
    pub(crate) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Starts a call in a slot and polls it once. Returns its result if it has ended already.
    pub(crate) fn start(&mut self, slot: u32, times: CallTimes, call: F) -> Option<F::Output> {
        let entry = &mut self.slots[slot as usize];
        entry.times = times;
        entry.call.set(Some(call));
        self.in_flight += 1;
        self.poll(slot)
    }

    pub(crate) fn times(&mut self, slot: u32) -> &mut CallTimes {
        &mut self.slots[slot as usize].times
    }

    /// Takes the slots that were woken since the last time. [`give_back`](Self::give_back) returns the allocation.
    pub(crate) fn take_woken(&mut self) -> Vec<u32> {
        let mut woken = std::mem::take(&mut self.woken);
        std::mem::swap(&mut *self.wakeups.queue(), &mut woken);
        woken
    }

    pub(crate) fn give_back(&mut self, mut woken: Vec<u32>) {
        woken.clear();
        self.woken = woken;
    }

    /// Polls the call in a slot. `None` if it has not ended, or there is none.
    pub(crate) fn poll(&mut self, slot: u32) -> Option<F::Output> {
        let Slot { call, waker, .. } = &mut self.slots[slot as usize];
        let polled = call.as_mut().as_pin_mut()?.poll(&mut Context::from_waker(waker));
        let Poll::Ready(output) = polled else { return None };
        call.set(None);
        self.in_flight -= 1;
        Some(output)
    }

    /// Drops all calls in flight and returns their times.
    pub(crate) fn abandon(&mut self) -> Vec<CallTimes> {
        self.in_flight = 0;
        let running = self.slots.iter_mut().filter(|slot| slot.call.is_some());
        let abandoned = running.map(|slot| {
            slot.call.set(None);
            slot.times
        });
        abandoned.collect()
    }
}

/// Queue of woken slots, and the waker of the thread's task.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    queue: Mutex<Vec<u32>>,
    task: AtomicWaker,
    stopped: AtomicBool,
}

impl Wakeups {
    /// Wakes this task when a call is woken or the run is stopped.
    pub(crate) fn register(&self, waker: &Waker) {
        self.task.register(waker);
    }

    /// Ends the run early.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.task.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn queue(&self) -> MutexGuard<'_, Vec<u32>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct SlotWaker {
    slot: u32,
    wakeups: Arc<Wakeups>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut queue = self.wakeups.queue();
        queue.push(self.slot);
        // The caller that pushed the first one has woken the task, which takes all.
        if queue.len() == 1 {
            drop(queue);
            self.wakeups.task.wake();
        }
    }
}

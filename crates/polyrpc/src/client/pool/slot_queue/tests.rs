use std::sync::Arc;
use std::task::Wake;

use super::*;

/// Waker that counts.
#[derive(Debug, Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Call in a queue.
struct Caller {
    ticket: Ticket,
    woken: Arc<Woken>,
}

impl Caller {
    fn join(queue: &SlotQueue<u32>) -> Self {
        let woken: Arc<Woken> = Arc::default();
        let (ticket, _) = queue.join(woken.clone().into());
        Self { ticket, woken }
    }

    fn poll(&self, queue: &SlotQueue<u32>) -> Poll<Grant<u32>> {
        queue.poll_grant(self.ticket, &self.woken.clone().into())
    }

    fn wakes(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

fn callers<const N: usize>(queue: &SlotQueue<u32>) -> [Caller; N] {
    std::array::from_fn(|_| Caller::join(queue))
}

#[test]
fn slots_are_handed_out_in_order_and_wake_as_many_calls_once() {
    let queue = SlotQueue::default();
    let callers: [_; 4] = callers(&queue);
    assert!(callers.iter().all(|caller| caller.poll(&queue).is_pending()));
    queue.with_waiting_calls(|calls| {
        assert_eq!(calls.len(), 4);
        calls.hand_out(1, || 7);
        calls.hand_out(2, || 8);
        assert_eq!(calls.len(), 1);
    });
    assert_eq!(callers.each_ref().map(Caller::wakes), [1, 1, 1, 0]);
    let grants = callers.each_ref().map(|caller| caller.poll(&queue));
    let slot = |slot| Poll::Ready(Grant::Slot(slot));
    assert_eq!(grants, [slot(7), slot(8), slot(8), Poll::Pending]);
    assert!(!queue.is_empty());
}

#[test]
fn call_that_joins_an_empty_queue_is_the_first() {
    let queue = SlotQueue::<u32>::default();
    let (one, is_first) = queue.join(Waker::noop().clone());
    assert!(is_first);
    assert!(!queue.join(Waker::noop().clone()).1);
    assert_eq!(queue.leave(one), Leftover { slot: None, was_connecting: false });
    assert!(!queue.join(Waker::noop().clone()).1);
    queue.with_waiting_calls(|calls| calls.hand_out(2, || 1));
    assert!(queue.is_empty(), "slots that were not taken yet do not hold up others");
    assert!(queue.join(Waker::noop().clone()).1);
}

#[test]
fn call_that_leaves_returns_the_slot_that_it_did_not_take() {
    let queue = SlotQueue::default();
    let callers: [_; 3] = callers(&queue);
    assert_eq!(queue.leave(callers[0].ticket), Leftover { slot: None, was_connecting: false });
    queue.with_waiting_calls(|calls| calls.hand_out(1, || 7));
    assert_eq!(callers.each_ref().map(Caller::wakes), [0, 1, 0]);
    assert_eq!(queue.leave(callers[1].ticket), Leftover { slot: Some(7), was_connecting: false });
    queue.with_waiting_calls(|calls| calls.hand_out(1, || 7));
    assert_eq!(callers[2].poll(&queue), Poll::Ready(Grant::Slot(7)));
    assert_eq!(queue.leave(callers[2].ticket), Leftover { slot: None, was_connecting: false });
}

#[test]
fn one_call_connects_until_it_leaves_and_gets_slots_meanwhile() {
    let queue = SlotQueue::default();
    let callers: [_; 2] = callers(&queue);
    queue.with_waiting_calls(|calls| {
        calls.let_first_connect();
        calls.let_first_connect();
    });
    assert_eq!(callers.each_ref().map(Caller::wakes), [1, 0]);
    assert_eq!(callers[0].poll(&queue), Poll::Ready(Grant::Connect));
    queue.with_waiting_calls(|calls| calls.wake_connecting());
    queue.with_waiting_calls(|calls| calls.hand_out(1, || 7));
    assert_eq!(callers.each_ref().map(Caller::wakes), [3, 0]);
    assert_eq!(queue.poll_slot(callers[0].ticket, Waker::noop()), Poll::Ready(7));
    // Until it leaves the queue, no other call is asked to connect.
    queue.with_waiting_calls(|calls| {
        calls.let_first_connect();
        calls.wake_connecting();
    });
    assert!(callers[1].poll(&queue).is_pending());
    assert_eq!(queue.leave(callers[0].ticket), Leftover { slot: None, was_connecting: true });
    queue.with_waiting_calls(|calls| calls.let_first_connect());
    assert_eq!(callers[1].poll(&queue), Poll::Ready(Grant::Connect));
}

#[test]
fn last_waker_is_woken() {
    let queue = SlotQueue::default();
    let caller = Caller::join(&queue);
    let other: Arc<Woken> = Arc::default();
    assert!(queue.poll_slot(caller.ticket, &other.clone().into()).is_pending());
    queue.with_waiting_calls(|calls| calls.hand_out(1, || 7));
    assert_eq!((caller.wakes(), other.0.load(Ordering::Relaxed)), (0, 1));
}

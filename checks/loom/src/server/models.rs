use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::turn_queue::{Demand, TakeTurns, Turn, TurnQueue};
use crate::bounded;
use crate::call::streaming::notify::StreamNotify;
use crate::memory_budget::{Account, Quota, Quotas, SharedUsage};

fn account(server: &Arc<SharedUsage>, peer: &Arc<SharedUsage>) -> Account {
    let all = Quota { bytes: 1 << 20, calls: 100, streams: 100 };
    let quotas = Quotas { server: all, peer: all, connection: all };
    Account::new(Arc::new(quotas), server.clone(), peer.clone())
}

/// A stream notifies its connection while that goes to sleep: it is woken, or has seen the notification before.
#[test]
fn notification_of_a_stream_is_never_missed() {
    bounded(|| {
        let usage = Arc::default();
        let notify = Arc::new(StreamNotify::new(Arc::new(account(&usage, &usage))));
        let streams: Vec<_> = [7, 8]
            .map(|stream| {
                let notify = notify.clone();
                thread::spawn(move || notify.notify(stream))
            })
            .into();
        let mut seen = Vec::new();
        // If it slept through one, this would never end: loom reports that as a deadlock.
        loom::future::block_on(poll_fn(|cx| {
            notify.set_awake();
            notify.take_notified(&mut seen);
            if seen.len() == 2 {
                return Poll::Ready(());
            }
            notify.sleep(cx.waker());
            Poll::Pending
        }));
        seen.sort_unstable();
        assert_eq!(seen, [7, 8]);
        streams.into_iter().for_each(|stream| stream.join().unwrap());
    });
}

/// Calls of two connections start and end at the same time: nothing of them is left in the counts that limit others.
#[test]
fn counts_of_calls_in_flight_return_to_zero() {
    bounded(|| {
        let (server, peer) = (Arc::<SharedUsage>::default(), Arc::<SharedUsage>::default());
        let other = {
            let account = account(&server, &peer);
            thread::spawn(move || {
                account.add_call();
                account.remove_call();
            })
        };
        let own = account(&server, &peer);
        own.add_call();
        own.add_stream();
        own.remove_call();
        own.remove_stream();
        drop(own);
        other.join().unwrap();
        for usage in [&server, &peer] {
            assert_eq!((usage.calls(), usage.streams(), usage.connections()), (0, 0, 0));
        }
    });
}

/// A message is charged to a connection, by the task of its stream, while the connection closes: no byte stays counted.
#[test]
fn bytes_charged_while_a_connection_closes_are_released() {
    loom::model(|| {
        let (server, peer) = (Arc::<SharedUsage>::default(), Arc::<SharedUsage>::default());
        let account = Arc::new(account(&server, &peer));
        let stream = {
            let account = account.clone();
            thread::spawn(move || {
                account.keep(5000);
                account.charge(5000);
                account.release(5000);
            })
        };
        account.close();
        stream.join().unwrap();
        drop(account);
        assert_eq!((server.bytes(), peer.bytes()), (0, 0));
    });
}

/// A connection that waits for one turn, and leaves after it.
struct Flooder {
    turn: Mutex<Turn>,
    turns: AtomicUsize,
}

impl TakeTurns for Flooder {
    fn turn(&self) -> Turn {
        *self.turn.lock().unwrap()
    }

    fn set_turn(&self, turn: Turn) {
        *self.turn.lock().unwrap() = turn;
    }

    fn wake_for_turn(self: &Arc<Self>) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }
}

/// Two connections queue for one slot, and leave once they had their turn: both get it, and the slot is free again.
#[test]
fn every_queued_connection_gets_its_turn() {
    loom::model(|| {
        let queue = Arc::new(TurnQueue::with_slots(1));
        let flooders =
            [(); 2].map(|()| Arc::new(Flooder { turn: Mutex::new(Turn::None), turns: AtomicUsize::new(0) }));
        let threads: Vec<_> = flooders
            .iter()
            .zip([Demand::Modest, Demand::Heavy])
            .map(|(flooder, demand)| {
                let (queue, flooder) = (queue.clone(), flooder.clone());
                thread::spawn(move || {
                    queue.enqueue(&flooder, demand);
                    while flooder.turns.load(Ordering::SeqCst) == 0 {
                        thread::yield_now();
                    }
                    queue.leave(&flooder);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(flooders.map(|flooder| flooder.turns.load(Ordering::SeqCst)), [1, 1]);
        assert_eq!(queue.taken(), 0);
        assert!(!queue.is_crowded());
    });
}

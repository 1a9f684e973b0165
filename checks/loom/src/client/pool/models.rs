use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::Mutex;
use loom::thread::{self, JoinHandle};

use super::open_connections::{OpenConnections, QueueEntry};
use super::slot_queue::Grant;
use crate::bounded;
use crate::client::connection::any_connection::{AnyConnection, Readiness};
use crate::client::connection::call_slot::CallSlot;

/// A slot is released while two calls arrive: both get it, one after the other.
#[test]
fn every_call_that_waits_gets_a_slot() {
    bounded(|| {
        let (pool, connection) = full_pool();
        let other = in_thread(&pool, |pool| drop(wait_for_slot(pool)));
        let releasing = release_in_thread(&connection);
        drop(wait_for_slot(&pool));
        other.join().unwrap();
        releasing.join().unwrap();
        assert_slot_is_free(&pool, &connection);
    });
}

/// A call is dropped while a slot may be handed out to it: the slot reaches the other call.
#[test]
fn slot_of_a_call_that_is_dropped_reaches_the_next() {
    bounded(|| {
        let (pool, connection) = full_pool();
        let dropped = in_thread(&pool, |pool| drop(poll_once(&mut QueueEntry::new(pool))));
        let releasing = release_in_thread(&connection);
        drop(wait_for_slot(&pool));
        dropped.join().unwrap();
        releasing.join().unwrap();
        assert_slot_is_free(&pool, &connection);
    });
}

/// A slot is handed out to a call while another task starts to poll it: that task is woken, or finds the slot.
#[test]
fn call_that_moves_to_another_task_gets_its_slot() {
    loom::model(|| {
        let (pool, connection) = full_pool();
        let releasing = release_in_thread(&connection);
        let mut entry = QueueEntry::new(&pool);
        let mut polled = poll_once(&mut entry);
        if polled.is_pending() {
            polled = Poll::Ready(wait(&mut entry));
        }
        assert!(matches!(polled, Poll::Ready(Grant::Slot(_))));
        drop((polled, entry));
        releasing.join().unwrap();
        assert_slot_is_free(&pool, &connection);
    });
}

/// The only connection takes no more calls while one arrives: this one is asked to connect.
#[test]
fn call_that_waits_for_an_ending_connection_connects() {
    loom::model(|| {
        let (pool, connection) = full_pool();
        let ending = thread::spawn(move || connection.end());
        assert!(matches!(wait(&mut QueueEntry::new(&pool)), Grant::Connect));
        ending.join().unwrap();
        assert!(pool.is_empty());
    });
}

/// A call is dropped while it may be asked to connect: the other call is asked then.
#[test]
fn turn_to_connect_of_a_call_that_is_dropped_reaches_the_next() {
    loom::model(|| {
        let pool = OpenConnections::new(Vec::new(), 1);
        let dropped = in_thread(&pool, |pool| drop(poll_once(&mut QueueEntry::new(pool))));
        assert!(matches!(wait(&mut QueueEntry::new(&pool)), Grant::Connect));
        dropped.join().unwrap();
        assert!(matches!(poll_once(&mut QueueEntry::new(&pool)), Poll::Ready(Grant::Connect)));
    });
}

/// A pool with one connection, whose only slot is in use.
fn full_pool() -> (Arc<OpenConnections>, Arc<Connection>) {
    let connection = Arc::new(Connection::default());
    (OpenConnections::new(vec![connection.clone()], 1), connection)
}

fn in_thread(pool: &Arc<OpenConnections>, call: fn(&Arc<OpenConnections>)) -> JoinHandle<()> {
    let pool = pool.clone();
    thread::spawn(move || call(&pool))
}

fn release_in_thread(connection: &Arc<Connection>) -> JoinHandle<()> {
    let connection = connection.clone();
    thread::spawn(move || connection.release_reserved())
}

fn poll_once(entry: &mut QueueEntry<'_>) -> Poll<Grant<CallSlot>> {
    entry.poll_grant(&mut Context::from_waker(Waker::noop()))
}

/// If the call is never woken, this never ends: loom reports that as a deadlock.
fn wait(entry: &mut QueueEntry<'_>) -> Grant<CallSlot> {
    block_on(poll_fn(|cx| entry.poll_grant(cx)))
}

fn wait_for_slot(pool: &Arc<OpenConnections>) -> CallSlot {
    match wait(&mut QueueEntry::new(pool)) {
        Grant::Slot(slot) => slot,
        Grant::Connect => panic!("there is a connection"),
    }
}

fn assert_slot_is_free(pool: &OpenConnections, connection: &Connection) {
    assert_eq!(connection.slots.lock().unwrap().free, 1);
    // No call waits.
    assert!(pool.try_share().is_some());
}

/// A connection that keeps account of its slots as the library's connection does.
#[derive(Default)]
struct Connection {
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    free: usize,
    is_ending: bool,
    vacancy_waker: Option<Waker>,
}

impl Connection {
    fn end(&self) {
        self.change(|slots| slots.is_ending = true);
    }

    fn change(&self, change: impl FnOnce(&mut Slots)) {
        let vacancy_waker = {
            let mut slots = self.slots.lock().unwrap();
            change(&mut slots);
            slots.vacancy_waker.take()
        };
        vacancy_waker.into_iter().for_each(Waker::wake);
    }
}

impl AnyConnection for Connection {
    fn readiness(&self) -> Readiness {
        match *self.slots.lock().unwrap() {
            Slots { is_ending: true, .. } => Readiness::Ending,
            Slots { free: 0, .. } => Readiness::Full,
            Slots { .. } => Readiness::Free,
        }
    }

    fn reserve(&self, calls: usize, waker: &Waker) -> Option<usize> {
        let mut slots = self.slots.lock().unwrap();
        if slots.is_ending {
            return None;
        }
        let reserved = slots.free.min(calls);
        slots.free -= reserved;
        if reserved < calls {
            slots.vacancy_waker = Some(waker.clone());
        }
        Some(reserved)
    }

    fn release_reserved(&self) {
        self.change(|slots| slots.free += 1);
    }

    fn close(&self) {}
}

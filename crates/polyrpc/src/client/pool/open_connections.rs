use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::slot_queue::{Grant, SlotQueue, Ticket};
use crate::client::connection::any_connection::{AnyConnection, Readiness};
use crate::client::connection::call_slot::CallSlot;
use crate::contention::{Mutex, MutexGuard};

/// The open connections of a pool, and the calls that wait for a slot on one of those that are shared.
///
/// While calls wait, every connection is full, except for one that was added just now. A connection wakes
/// `OpenConnections` when it has a free slot or stops taking calls; slots are then handed to the calls that have waited
/// for longest.
///
/// Lock order: queue, then `connections`, then the state of a connection.
pub(super) struct OpenConnections {
    connections: Mutex<Vec<Arc<dyn AnyConnection>>>,
    queue: SlotQueue<CallSlot>,
    /// Maximum number of shared connections.
    max_shared: usize,
}

impl OpenConnections {
    pub(super) fn new(connections: Vec<Arc<dyn AnyConnection>>, max_shared: usize) -> Arc<Self> {
        Arc::new(Self { connections: Mutex::new(connections), queue: SlotQueue::default(), max_shared })
    }

    /// Returns an unreserved slot on a connection with room, if any. `None` if calls wait in the queue, so that none is
    /// overtaken.
    pub(super) fn try_share(&self) -> Option<CallSlot> {
        if !self.queue.is_empty() {
            return None;
        }
        let mut connections = self.lock();
        if let Some(connection) = connections.first().filter(|connection| connection.is_available()) {
            return Some(CallSlot::new(connection.clone()));
        }
        connections.retain(|connection| {
            let is_ending = connection.readiness() == Readiness::Ending;
            if is_ending {
                // It closes when its last call has ended.
                connection.close();
            }
            !is_ending
        });
        connections.iter().find(|connection| connection.is_available()).cloned().map(CallSlot::new)
    }

    /// Hands the free slots of all connections to calls that wait. If calls still wait, and fewer than `max_shared`
    /// connections are open, the first waiting call is asked to connect, unless a call connects already.
    pub(super) fn hand_out_slots(self: &Arc<Self>) {
        self.queue.with_waiting_calls(|calls| {
            if calls.len() == 0 {
                return;
            }
            let waker = Waker::from(self.clone());
            let mut connections = self.lock();
            connections.retain(|connection| {
                let Some(slots) = connection.reserve(calls.len(), &waker) else {
                    connection.close();
                    return false;
                };
                calls.hand_out(slots, || CallSlot::from_reserved(connection.clone()));
                true
            });
            if connections.len() < self.max_shared {
                calls.let_first_connect();
            }
            if connections.is_empty() {
                // The connecting call may be sleeping between two attempts (`Pool::connect_shared`). Without an open
                // connection it must try again now, and return the failure.
                calls.wake_connecting();
            }
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn AnyConnection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for OpenConnections {
    fn wake(self: Arc<Self>) {
        self.hand_out_slots();
    }
}

/// Entry of a call in the queue.
///
/// # Cancel safety
///
/// Dropping it leaves the queue: a slot that was handed out to the call is handed out to the next one, and so is the
/// turn to connect.
pub(super) struct QueueEntry<'c> {
    connections: &'c Arc<OpenConnections>,
    /// Set while it is in the queue.
    ticket: Option<Ticket>,
}

impl<'c> QueueEntry<'c> {
    /// Creates an entry that joins the queue when it is first polled.
    pub(super) fn new(connections: &'c Arc<OpenConnections>) -> Self {
        Self { connections, ticket: None }
    }

    /// Waits for a slot, or for the turn to connect.
    pub(super) fn poll_grant(&mut self, cx: &mut Context<'_>) -> Poll<Grant<CallSlot>> {
        let queue = &self.connections.queue;
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => {
                let (ticket, is_first) = queue.join(cx.waker().clone());
                self.ticket = Some(ticket);
                if !is_first {
                    // While calls wait, no slot is free.
                    return Poll::Pending;
                }
                self.connections.hand_out_slots();
                ticket
            }
        };
        queue.poll_grant(ticket, cx.waker())
    }

    /// Waits for a slot while a connection is established.
    pub(super) fn poll_slot(&self, cx: &mut Context<'_>) -> Poll<CallSlot> {
        match self.ticket {
            Some(ticket) => self.connections.queue.poll_slot(ticket, cx.waker()),
            None => Poll::Pending,
        }
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let left = self.connections.queue.leave(ticket);
        // The connection hands it out again.
        drop(left.slot);
        if left.was_connecting {
            self.connections.hand_out_slots();
        }
    }
}

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use polyrpc_core::Head;

use super::StreamNotify;
use crate::contention::{Mutex, MutexGuard};

/// Queue of the encoded messages of one call that wait to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing(Arc<Shared>);

/// The connection's side of an [`Outgoing`].
#[derive(Debug)]
pub(crate) struct OutgoingReceiver(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: u64,
    stream_notify: Arc<StreamNotify>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    head: Option<Head>,
    messages: VecDeque<Bytes>,
    bytes: usize,
    rung: bool,
    producer: Option<Waker>,
}

impl Outgoing {
    /// Maximum number of queued messages. A write should carry many small ones.
    const MESSAGES: usize = 32;
    /// Maximum number of queued bytes; the message that exceeds it is the last.
    const BYTES: usize = 32 << 10;

    /// Creates a queue for messages of this stream, which notifies the connection when there are some.
    pub(crate) fn new(stream: u64, stream_notify: Arc<StreamNotify>) -> (Self, OutgoingReceiver) {
        let shared = Arc::new(Shared { stream, stream_notify, state: Mutex::default() });
        (Self(shared.clone()), OutgoingReceiver(shared))
    }

    /// Sets the head, sent before the first message.
    pub(crate) fn set_head(&self, head: Head) {
        self.change(|state| state.head = Some(head));
    }

    /// Polls for room for a message; the task is woken when there is some.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.messages.len() < Self::MESSAGES && state.bytes < Self::BYTES {
            return Poll::Ready(());
        }
        state.producer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Adds an encoded message, not compressed yet. Check for [room](Self::poll_room) first.
    pub(crate) fn send(&self, message: Bytes) {
        self.0.stream_notify.account.keep(footprint(&message));
        self.change(|state| {
            state.bytes += message.len();
            state.messages.push_back(message);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        change(&mut state);
        if !std::mem::replace(&mut state.rung, true) {
            drop(state);
            self.0.stream_notify.notify(self.0.stream);
        }
    }
}

/// Returns the memory of a queued message: its bytes, and its slot.
pub(super) fn footprint(message: &Bytes) -> usize {
    message.len() + MESSAGE_OVERHEAD
}

/// Approximate memory of a queued message without its bytes. Peers may send very many empty ones.
const MESSAGE_OVERHEAD: usize = 64;

impl OutgoingReceiver {
    /// Returns the head, sent before the first message, once it is set.
    pub(crate) fn head(&self) -> Option<Head> {
        self.0.lock().head.take()
    }

    /// Takes the next message to send.
    pub(crate) fn next(&self) -> Option<Bytes> {
        let mut state = self.0.lock();
        let message = state.messages.pop_front();
        match &message {
            Some(message) => {
                state.bytes -= message.len();
                self.0.stream_notify.account.release(footprint(message));
            }
            None => state.rung = false,
        }
        message
    }

    /// Wakes the sender if there is room, after the connection has taken what it can for now.
    pub(crate) fn resume_senders(&self) {
        let producer = {
            let mut state = self.0.lock();
            // At least half empty, so that it is filled in batches.
            let has_room =
                state.messages.len() <= Outgoing::MESSAGES / 2 && state.bytes <= Outgoing::BYTES / 2;
            has_room.then(|| state.producer.take()).flatten()
        };
        if let Some(producer) = producer {
            producer.wake();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.stream_notify.account.release(state.messages.iter().map(footprint).sum());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

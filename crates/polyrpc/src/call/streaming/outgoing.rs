use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use polyrpc_core::Head;

use super::StreamNotify;

/// Where the encoded messages of one call wait for the connection to send them.
#[derive(Debug)]
pub struct Outgoing(Arc<Shared>);

/// The connection's end of an [`Outgoing`].
#[derive(Debug)]
pub(crate) struct OutgoingReceiver(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: u64,
    bell: Arc<StreamNotify>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    head: Option<Head>,
    messages: VecDeque<Bytes>,
    bytes: usize,
    rung: bool,
    maker: Option<Waker>,
}

impl Outgoing {
    /// Messages that may wait to be sent. A write should carry many small ones.
    const MESSAGES: usize = 32;
    /// Bytes of messages that may wait to be sent; the message that goes beyond it is the last.
    const BYTES: usize = 32 << 10;

    /// A way for messages of this stream, which rings when there are some.
    pub(crate) fn new(stream: u64, bell: Arc<StreamNotify>) -> (Self, OutgoingReceiver) {
        let shared = Arc::new(Shared { stream, bell, state: Mutex::default() });
        (Self(shared.clone()), OutgoingReceiver(shared))
    }

    /// Sets what travels before the first message.
    pub fn set_head(&self, head: Head) {
        self.change(|state| state.head = Some(head));
    }

    /// Whether there is room for a message; if not, the task is woken when there is.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.messages.len() < Self::MESSAGES && state.bytes < Self::BYTES {
            return Poll::Ready(());
        }
        state.maker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Adds a message, encoded and not compressed yet. Ask for [room](Self::poll_room) before.
    pub fn send(&self, message: Bytes) {
        self.0.bell.account.keep(footprint(&message));
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
            self.0.bell.notify(self.0.stream);
        }
    }
}

/// What a queued message takes: its bytes, and its place.
pub(super) fn footprint(message: &Bytes) -> usize {
    message.len() + PLACE
}

/// About what a message takes beside its bytes. Peers may send very many that are empty.
const PLACE: usize = 64;

impl OutgoingReceiver {
    /// What travels before the first message, once it is known.
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
                self.0.bell.account.release(footprint(message));
            }
            None => state.rung = false,
        }
        message
    }

    /// The connection has taken what it can for now: whoever waits for room may go on if there is some.
    pub(crate) fn resume_senders(&self) {
        let maker = {
            let mut state = self.0.lock();
            // Half empty at least, so that it is filled in batches.
            let roomy = state.messages.len() <= Outgoing::MESSAGES / 2 && state.bytes <= Outgoing::BYTES / 2;
            roomy.then(|| state.maker.take()).flatten()
        };
        if let Some(maker) = maker {
            maker.wake();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.bell.account.release(state.messages.iter().map(footprint).sum());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

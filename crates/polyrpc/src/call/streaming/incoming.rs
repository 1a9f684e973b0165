use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::{fmt, mem};

use bytes::Bytes;
use polyrpc_core::{Compression, Message, Metadata, Status};

use super::StreamNotify;
use super::outgoing::footprint;
use crate::codec::{decompress_message, decompress_message_aside};

/// The messages that the peer sends on one call, encoded.
///
/// How many wait here is bounded by what the protocol allows the peer to send ahead; it is allowed more only
/// when messages are taken out.
#[derive(Debug, Clone)]
pub struct Incoming(Arc<Shared>);

/// The connection's end of an [`Incoming`].
#[derive(Debug)]
pub(crate) struct IncomingSender(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: u64,
    bell: Option<Arc<StreamNotify>>,
    /// Bytes that a message may have once its compression is undone.
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Message>,
    /// Bytes of messages taken that the peer was not told of.
    consumed: usize,
    /// Bytes of messages that were not sent on the stream: their taking is nothing to tell.
    uncounted: usize,
    /// No more messages come, or why.
    end: Option<Result<(), Status>>,
    trailers: Metadata,
    taker: Option<Waker>,
    /// The message taken last, which is being decompressed.
    decompressing: Option<Decompressing>,
}

struct Decompressing(Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send>>);

impl fmt::Debug for Decompressing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decompressing")
    }
}

impl Incoming {
    /// A way for messages of this stream, which rings when some were taken.
    pub(crate) fn new(stream: u64, bell: Arc<StreamNotify>, limit: usize) -> (IncomingSender, Self) {
        let shared = Arc::new(Shared { stream, bell: Some(bell), limit, state: Mutex::default() });
        (IncomingSender(shared.clone()), Self(shared))
    }

    /// A single message, which is there already and not compressed.
    pub(crate) fn once(body: Bytes) -> Self {
        let message = Message { body, compression: Compression::None };
        let state = State { messages: [message].into(), end: Some(Ok(())), ..State::default() };
        Self(Arc::new(Shared { stream: 0, bell: None, limit: usize::MAX, state: Mutex::new(state) }))
    }

    /// Puts a message before those that come on the stream, unless it is empty.
    pub(crate) fn preface(&self, body: Bytes) {
        if !body.is_empty() {
            self.0.keep(footprint(&body));
            let mut state = self.0.lock();
            state.uncounted += body.len();
            state.messages.push_front(Message { body, compression: Compression::None });
        }
    }

    /// The next message, its compression undone; `None` behind the last. An error is given once and ends it.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            let mut state = self.0.lock();
            if let Some(Decompressing(message)) = &mut state.decompressing {
                let message = ready!(message.as_mut().poll(cx));
                state.decompressing = None;
                return Poll::Ready(Some(message));
            }
            drop(state);
            let message = match ready!(self.poll_raw(cx)) {
                Some(Ok(message)) => message,
                other => return Poll::Ready(other.map(|message| message.map(|message| message.body))),
            };
            if message.compression == Compression::None {
                return Poll::Ready(Some(Ok(message.body)));
            }
            let Some(bell) = &self.0.bell else {
                return Poll::Ready(Some(decompress_message(message, self.0.limit)));
            };
            let message = decompress_message_aside(message, self.0.limit, bell.account.clone());
            self.0.lock().decompressing = Some(Decompressing(Box::pin(message)));
        }
    }

    /// The next message as it came; `None` behind the last.
    pub(crate) async fn next_raw(&self) -> Option<Result<Message, Status>> {
        poll_fn(|cx| self.poll_raw(cx)).await
    }

    fn poll_raw(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        let mut state = self.0.lock();
        let Some(message) = state.messages.pop_front() else {
            return match &mut state.end {
                Some(end) => Poll::Ready(mem::replace(end, Ok(())).err().map(Err)),
                None => {
                    state.taker = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        };
        let first = state.take(message.body.len());
        drop(state);
        self.0.release(footprint(&message.body));
        if first {
            self.0.notify();
        }
        Poll::Ready(Some(Ok(message)))
    }

    /// What travelled behind the last message.
    pub(crate) fn trailers(&self) -> Metadata {
        self.0.lock().trailers.clone()
    }
}

impl Drop for Incoming {
    /// Messages that will not be received must not use up the connection's flow-control window.
    fn drop(&mut self) {
        // This one and the connection's; clones never leave the stream they are part of.
        if Arc::strong_count(&self.0) > 2 {
            return;
        }
        let mut state = self.0.lock();
        let (left, footprint) = state.clear();
        let first = state.take(left);
        drop(state);
        self.0.release(footprint);
        if first {
            self.0.notify();
        }
    }
}

impl IncomingSender {
    /// Whether the receiver is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// A message has come. `false`: too many wait already, or none was expected any more.
    pub(crate) fn give(&self, mut message: Message) -> bool {
        if message.body.len() < SMALL {
            // A slice of a read would keep all of it.
            message.body = Bytes::copy_from_slice(&message.body);
        }
        let mut taken = false;
        self.change(|state| {
            taken = state.end.is_none() && state.messages.len() < MOST_WAITING;
            if taken {
                self.0.keep(footprint(&message.body));
                state.messages.push_back(message);
            }
        });
        taken
    }

    /// A message is there that did not come on the stream.
    pub(crate) fn preface(&self, message: Message) {
        self.change(|state| {
            state.uncounted += message.body.len();
            self.0.keep(footprint(&message.body));
            state.messages.push_back(message);
        });
    }

    /// No more messages come, and those that wait are given up.
    pub(crate) fn abort(&self, status: Status) {
        self.change(|state| {
            if state.end.is_none() {
                self.0.release(state.clear().1);
                state.end = Some(Err(status));
            }
        });
    }

    /// No more messages come. Those that wait may still be taken.
    pub(crate) fn close(&self, result: Result<(), Status>, trailers: Metadata) {
        self.change(|state| {
            if state.end.is_none() {
                state.end = Some(result);
                state.trailers = trailers;
            }
        });
    }

    /// How many bytes of messages were taken since this was last asked.
    pub(crate) fn consumed(&self) -> usize {
        mem::take(&mut self.0.lock().consumed)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let taker = {
            let mut state = self.0.lock();
            change(&mut state);
            state.taker.take()
        };
        if let Some(taker) = taker {
            taker.wake();
        }
    }
}

impl Drop for IncomingSender {
    /// Parts of a handler may live on in other tasks when the connection is dropped: they must not wait for ever.
    fn drop(&mut self) {
        self.change(|state| {
            state.end.get_or_insert_with(|| {
                Err(Status::unavailable("the call has failed, or its connection has ended"))
            });
        });
    }
}

/// Messages shorter than this have memory of their own while they wait.
const SMALL: usize = 512;

/// Messages that may wait to be taken, however small they are. Bytes meet the limits of the protocol much earlier.
const MOST_WAITING: usize = 1 << 20;

impl State {
    /// Throws away what waits to be taken; returns how many bytes it was, and how many it took.
    fn clear(&mut self) -> (usize, usize) {
        let sizes = self.messages.drain(..).map(|message| (message.body.len(), footprint(&message.body)));
        sizes.fold((0, 0), |(bytes, taken), (more, took)| (bytes + more, taken + took))
    }

    /// Counts what was taken. Returns whether it is the first that there is to tell of.
    fn take(&mut self, bytes: usize) -> bool {
        let uncounted = bytes.min(self.uncounted);
        self.uncounted -= uncounted;
        let first = self.consumed == 0 && bytes > uncounted;
        self.consumed += bytes - uncounted;
        first
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let (_, taken) = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.release(taken);
    }
}

impl Shared {
    /// So many bytes wait to be taken.
    fn keep(&self, bytes: usize) {
        if let Some(bell) = &self.bell {
            bell.account.keep(bytes);
        }
    }

    /// So many bytes wait no longer.
    fn release(&self, bytes: usize) {
        if let Some(bell) = &self.bell {
            bell.account.release(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        if let Some(bell) = &self.bell {
            bell.notify(self.stream);
        }
    }
}

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::{fmt, mem};

use bytes::Bytes;
use polyrpc_core::{Compression, Message, Metadata, Status};

use super::StreamNotify;
use super::outgoing::footprint;
use crate::codec::{decompress_message, decompress_message_on_blocking_pool};
use crate::contention::{Mutex, MutexGuard};

/// The encoded messages that the peer sends on one call.
///
/// The queue is bounded by the flow-control window of the protocol, which is extended only when messages are taken out.
#[derive(Debug, Clone)]
pub(crate) struct Incoming(Arc<Shared>);

/// The connection's side of an [`Incoming`].
#[derive(Debug)]
pub(crate) struct IncomingSender(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: u64,
    stream_notify: Option<Arc<StreamNotify>>,
    /// Maximum size of a message after decompression, in bytes.
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Message>,
    /// Bytes of consumed messages that were not yet credited to the peer.
    consumed: usize,
    /// Bytes of messages that were not sent on the stream: they are never credited.
    uncounted: usize,
    /// Set once no more messages arrive, with the error if any.
    end: Option<Result<(), Status>>,
    trailers: Metadata,
    taker: Option<Waker>,
    /// The message taken last, while it is being decompressed.
    decompressing: Option<Decompressing>,
}

struct Decompressing(Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send>>);

impl fmt::Debug for Decompressing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decompressing")
    }
}

impl Incoming {
    /// Creates a queue for messages of this stream, which notifies the connection when some were consumed.
    pub(crate) fn new(stream: u64, stream_notify: Arc<StreamNotify>, limit: usize) -> (IncomingSender, Self) {
        let shared =
            Arc::new(Shared { stream, stream_notify: Some(stream_notify), limit, state: Mutex::default() });
        (IncomingSender(shared.clone()), Self(shared))
    }

    /// Creates a queue with a single message, already received and not compressed.
    pub(crate) fn once(body: Bytes) -> Self {
        let message = Message { body, compression: Compression::None };
        let state = State { messages: [message].into(), end: Some(Ok(())), ..State::default() };
        Self(Arc::new(Shared { stream: 0, stream_notify: None, limit: usize::MAX, state: Mutex::new(state) }))
    }

    /// Adds a message before those of the stream, unless it is empty.
    pub(crate) fn preface(&self, body: Bytes) {
        if !body.is_empty() {
            self.0.keep(footprint(&body));
            let mut state = self.0.lock();
            state.uncounted += body.len();
            state.messages.push_front(Message { body, compression: Compression::None });
        }
    }

    /// Polls for the next message, decompressed; `None` after the last. An error is returned once and ends the stream.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
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
            let Some(stream_notify) = &self.0.stream_notify else {
                return Poll::Ready(Some(decompress_message(message, self.0.limit)));
            };
            let message =
                decompress_message_on_blocking_pool(message, self.0.limit, stream_notify.account.clone());
            self.0.lock().decompressing = Some(Decompressing(Box::pin(message)));
        }
    }

    /// Returns the next message as received; `None` after the last.
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

    /// Waits until the peer sends no more messages, or its connection has ended, even if messages wait to be taken. No
    /// other task may wait for messages meanwhile.
    pub(crate) async fn wait_until_ended(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.end.is_some() {
                return Poll::Ready(());
            }
            state.taker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Returns the trailers, received after the last message.
    pub(crate) fn trailers(&self) -> Metadata {
        self.0.lock().trailers.clone()
    }
}

impl Drop for Incoming {
    /// Messages that will not be received must not use up the connection's flow-control window.
    fn drop(&mut self) {
        // This one and the connection's; clones never leave the stream that they are part of.
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
    /// Returns whether the receiver was dropped.
    pub(crate) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Adds a received message. Returns `false` if too many are queued already, or if the stream has ended.
    pub(crate) fn deliver(&self, mut message: Message) -> bool {
        if message.body.len() < SMALL {
            // A slice of a read buffer would keep all of it alive.
            message.body = Bytes::copy_from_slice(&message.body);
        }
        let mut taken = false;
        self.change(|state| {
            taken = state.end.is_none() && state.messages.len() < MAX_WAITING;
            if taken {
                self.0.keep(footprint(&message.body));
                state.messages.push_back(message);
            }
        });
        taken
    }

    /// Adds a message that was not received on the stream.
    pub(crate) fn preface(&self, message: Message) {
        self.change(|state| {
            state.uncounted += message.body.len();
            self.0.keep(footprint(&message.body));
            state.messages.push_back(message);
        });
    }

    /// Aborts the stream: no more messages arrive, and queued ones are dropped.
    pub(crate) fn abort(&self, status: Status) {
        self.change(|state| {
            if state.end.is_none() {
                self.0.release(state.clear().1);
                state.end = Some(Err(status));
            }
        });
    }

    /// Closes the stream: no more messages arrive. Queued ones can still be taken.
    pub(crate) fn close(&self, result: Result<(), Status>, trailers: Metadata) {
        self.change(|state| {
            if state.end.is_none() {
                state.end = Some(result);
                state.trailers = trailers;
            }
        });
    }

    /// Returns how many bytes of messages were consumed since the last call.
    pub(crate) fn take_consumed(&self) -> usize {
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
    /// Parts of a handler may live on in other tasks when the connection is dropped: they must not wait forever.
    fn drop(&mut self) {
        self.change(|state| {
            state.end.get_or_insert_with(|| {
                Err(Status::unavailable("the call has failed, or its connection has ended"))
            });
        });
    }
}

/// Messages shorter than this are copied into their own memory while they are queued.
const SMALL: usize = 512;

/// Maximum number of queued messages, however small. The protocol's limits on bytes apply much earlier.
const MAX_WAITING: usize = 1 << 20;

impl State {
    /// Drops queued messages; returns their bytes, and the bytes of memory that they held.
    fn clear(&mut self) -> (usize, usize) {
        let sizes = self.messages.drain(..).map(|message| (message.body.len(), footprint(&message.body)));
        sizes.fold((0, 0), |(bytes, taken), (more, took)| (bytes + more, taken + took))
    }

    /// Counts consumed bytes. Returns whether they are the first that are not yet credited.
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
    /// Charges queued bytes.
    fn keep(&self, bytes: usize) {
        if let Some(stream_notify) = &self.stream_notify {
            stream_notify.account.keep(bytes);
        }
    }

    /// Releases queued bytes.
    fn release(&self, bytes: usize) {
        if let Some(stream_notify) = &self.stream_notify {
            stream_notify.account.release(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        if let Some(stream_notify) = &self.stream_notify {
            stream_notify.notify(self.stream);
        }
    }
}

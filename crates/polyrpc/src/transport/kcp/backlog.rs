use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use super::conversation::Conversation;
use crate::contention::{Mutex, MutexGuard};

/// Conversations that wait to be accepted.
///
/// Their addresses may be forged. If there are too many, the oldest is evicted instead of the newest rejected, so that
/// a flood of forged addresses does not keep clients out.
#[derive(Debug)]
pub(super) struct Backlog {
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Arc<Conversation>>,
    acceptor: Option<Waker>,
    is_closed: bool,
}

impl Backlog {
    pub(super) fn new() -> Self {
        Self { queue: Mutex::new(Queue { waiting: VecDeque::new(), acceptor: None, is_closed: false }) }
    }

    /// Adds a conversation. Returns the one that is evicted.
    pub(super) fn push(&self, conversation: Arc<Conversation>) -> Option<Arc<Conversation>> {
        let mut queue = self.lock();
        if queue.is_closed {
            return Some(conversation);
        }
        if queue.waiting.len() >= MAX_WAITING {
            queue.waiting.retain(|waiting| !waiting.is_over());
        }
        let oldest = if queue.waiting.len() >= MAX_WAITING { queue.waiting.pop_front() } else { None };
        queue.waiting.push_back(conversation);
        let acceptor = queue.acceptor.take();
        drop(queue);
        acceptor.into_iter().for_each(Waker::wake);
        oldest
    }

    /// Returns the conversation that has waited longest and has not ended.
    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Conversation>>> {
        let mut queue = self.lock();
        while let Some(conversation) = queue.waiting.pop_front() {
            if !conversation.is_over() {
                return Poll::Ready(Ok(conversation));
            }
        }
        if queue.is_closed {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        queue.acceptor = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Closes the backlog, since the listener is gone or the socket is broken. Returns the waiting conversations.
    pub(super) fn close(&self) -> VecDeque<Arc<Conversation>> {
        let mut queue = self.lock();
        queue.is_closed = true;
        let acceptor = queue.acceptor.take();
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        acceptor.into_iter().for_each(Waker::wake);
        waiting
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum number of waiting conversations (`sess.go: acceptBacklog`).
const MAX_WAITING: usize = 128;

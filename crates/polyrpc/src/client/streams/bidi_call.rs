//! Bidirectional call as one pollable state machine: polling for the response also sends the requests.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use polyrpc_core::{Head, Metadata, Status};

use super::streaming_call::{CallReceiver, CallSender};
use crate::client::cluster::CallConnection;
use crate::client::layered_call::LayerGuard;
use crate::codec::Body;

/// Both halves of a call, and the requests that are still to be sent.
pub(super) struct BidiCall {
    source: MessageSource,
    sending: CallSender,
    receiving: CallReceiver,
    /// Whether the server has ended the call and receives nothing more.
    over: bool,
}

impl BidiCall {
    pub(super) fn new(source: MessageSource, (sending, receiving): (CallSender, CallReceiver)) -> Self {
        Self { source, sending, receiving, over: false }
    }

    /// Attaches layers to the call.
    pub(super) fn attach_layers(&mut self, layer_guard: LayerGuard) {
        self.receiving.attach_layers(layer_guard);
    }

    /// Polls for the response head. An error ends the call.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Status>> {
        self.poll_requests(cx)?;
        self.receiving.poll_head(cx).map_ok(|()| self.receiving.head().cloned().unwrap_or_default())
    }

    /// Polls for the next response message; `None` after the last. An error ends the call.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Body, Status>>> {
        if let Err(status) = self.poll_requests(cx) {
            return Poll::Ready(Some(Err(status)));
        }
        self.receiving.poll_next(cx)
    }

    /// Trailing metadata.
    pub(super) fn trailers(&self) -> &Metadata {
        self.receiving.trailers()
    }

    /// Disables retries, since the response has started.
    pub(super) fn disable_retry(&mut self) {
        self.source.forget();
        if self.over {
            self.source.close();
        }
    }

    /// Returns the requests from the first one on, if they can be sent again.
    pub(super) fn into_rewound(self) -> Option<MessageSource> {
        let mut source = self.source;
        source.rewind().then_some(source)
    }

    pub(super) fn connection(&self) -> &Arc<CallConnection> {
        self.sending.connection()
    }

    /// Sends requests as long as there is capacity. An error is that of the requests.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        if self.over {
            return Ok(());
        }
        for _ in 0..MAX_BATCHES {
            let idle = self.fill(cx)?;
            match self.sending.poll_flush(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(())) if idle => return Ok(()),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    self.over = true;
                    if !self.source.is_kept() {
                        self.source.close();
                    }
                    return Ok(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Queues requests. Returns whether there are no more of them now.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<bool, Status> {
        while self.sending.has_capacity() {
            match self.source.poll_next(cx) {
                Poll::Ready(Some(message)) => self.sending.push(message?),
                Poll::Ready(None) => self.sending.finish(),
                Poll::Pending => return Ok(true),
            }
        }
        Ok(self.source.is_exhausted())
    }
}

/// Number of batches that are sent before yielding.
const MAX_BATCHES: usize = 16;

/// Encoded requests of a call.
pub(super) type Requests = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// Requests of a call; they can be resent as long as they are retained.
pub(super) struct MessageSource {
    rest: Option<Requests>,
    /// Requests to resend before the rest.
    again: VecDeque<Bytes>,
    /// Requests sent so far, while the server may still report that it did not process the call.
    kept: Option<Vec<Bytes>>,
    bytes: usize,
}

impl MessageSource {
    /// Maximum number of bytes that are retained for a resend.
    const MAX_KEPT_BYTES: usize = 64 << 10;

    pub(super) fn new(requests: Requests, keep: bool) -> Self {
        Self { rest: Some(requests), again: VecDeque::new(), kept: keep.then(Vec::new), bytes: 0 }
    }

    /// Restarts from the first request, if all sent requests are retained.
    fn rewind(&mut self) -> bool {
        let Some(kept) = self.kept.take() else { return false };
        let rest = std::mem::take(&mut self.again);
        self.again = kept.into_iter().chain(rest).collect();
        true
    }

    fn forget(&mut self) {
        self.kept = None;
    }

    fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    fn is_exhausted(&self) -> bool {
        self.rest.is_none() && self.again.is_empty()
    }

    fn close(&mut self) {
        self.rest = None;
        self.again.clear();
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        let next = match (self.again.pop_front(), &mut self.rest) {
            (Some(message), _) => Poll::Ready(Some(Ok(message))),
            (None, Some(rest)) => rest.as_mut().poll_next(cx),
            (None, None) => Poll::Ready(None),
        };
        match &next {
            Poll::Ready(Some(Ok(message))) => self.keep(message),
            Poll::Ready(Some(Err(_))) => {
                // The failure is the caller's own, whatever its status.
                self.forget();
                self.close();
            }
            Poll::Ready(None) => self.rest = None,
            Poll::Pending => {}
        }
        next
    }

    fn keep(&mut self, message: &Bytes) {
        let Some(kept) = &mut self.kept else { return };
        self.bytes += message.len();
        if self.bytes > Self::MAX_KEPT_BYTES {
            self.kept = None;
        } else {
            kept.push(message.clone());
        }
    }
}

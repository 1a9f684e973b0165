//! Partially received requests that are held until they are complete, since a complete call costs far less than a
//! streaming one.
//!
//! Some peers send the heads of all their calls before the first body, others end a request with a separate frame.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::SlowPeerGuard;

use super::clock::Clock;
use crate::grpc::dialect::Dialect;
use crate::grpc::frame;
use crate::grpc::request::Request;

/// An incomplete request.
#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) stream: u32,
    pub(super) request: Arc<Request>,
    /// The method's request is a single message.
    pub(super) has_unary_request: bool,
    /// The first piece of its message, as received.
    first: Bytes,
    /// All received bytes of its message, in memory of its own.
    gathered: BytesMut,
    clock: Clock,
}

/// Maximum size of a message that is held. Longer ones arrive in several frames anyway.
const MAX_HELD_MESSAGE: usize = 16 << 10;

impl HeldRequest {
    /// Returns the received part of its message, and the timer of that.
    pub(super) fn into_body(self) -> (u32, Arc<Request>, Bytes, Clock) {
        let body = if self.gathered.is_empty() { self.first } else { self.gathered.freeze() };
        (self.stream, self.request, body, self.clock)
    }

    /// Returns the number of received bytes of its message.
    fn held(&self) -> usize {
        self.first.len() + self.gathered.len()
    }

    /// Adds a piece. Returns `false`, and adds nothing, if waiting for the rest is useless.
    fn add(&mut self, piece: &Bytes, limit: usize) -> bool {
        let has = self.held();
        let is_web_text = self.request.dialect == Dialect::WebText;
        if !self.has_unary_request || is_web_text || has + piece.len() > MAX_HELD_MESSAGE {
            return false;
        }
        if has == 0 {
            self.first = piece.clone();
        } else {
            self.detach_from_read();
            self.gathered.extend_from_slice(piece);
        }
        let body = if self.first.is_empty() { &self.gathered[..] } else { &self.first[..] };
        if self.request.dialect.has_bare_request() || frame::may_be_sole(body, limit.min(MAX_HELD_MESSAGE)) {
            self.clock.receive(piece.len());
            return true;
        }
        self.gathered.truncate(has);
        self.first.truncate(has);
        false
    }

    /// Copies the first piece, so that it does not keep the whole read buffer alive.
    fn detach_from_read(&mut self) {
        if !self.first.is_empty() {
            self.gathered = BytesMut::from(&self.first[..]);
            self.first = Bytes::new();
        }
    }
}

/// Held requests, in the order of their heads.
#[derive(Debug, Default)]
pub(in crate::http_server::h2) struct HeldRequests {
    parts: VecDeque<HeldRequest>,
    /// Total size in bytes.
    held: usize,
    /// Number of requests at the front that must not be held any longer.
    overdue: usize,
    /// Since when some are held, to a tick.
    since: Option<Duration>,
}

/// Maximum time to hold an incomplete call before it is opened. With a longer one, nothing could answer the call when
/// it times out.
const MAX_WAIT: Duration = Duration::from_millis(500);

impl HeldRequests {
    pub(super) fn push(&mut self, stream: u32, request: Arc<Request>, has_unary_request: bool) {
        self.held += request.metadata.footprint();
        self.parts.push_back(HeldRequest {
            stream,
            request,
            has_unary_request,
            first: Bytes::new(),
            gathered: BytesMut::new(),
            clock: Clock::default(),
        });
    }

    /// Adds a piece that is not the last one. Returns `false` if its request is not held, or must not be held any
    /// longer.
    pub(super) fn add(&mut self, stream: u32, piece: &Bytes, limit: usize) -> bool {
        let part = self.position(stream).and_then(|at| self.parts.get_mut(at));
        let is_added = part.is_some_and(|part| part.add(piece, limit));
        self.held += if is_added { piece.len() } else { 0 };
        is_added
    }

    /// Removes a request.
    pub(super) fn take(&mut self, stream: u32) -> Option<HeldRequest> {
        let at = self.position(stream)?;
        self.remove(at)
    }

    fn remove(&mut self, at: usize) -> Option<HeldRequest> {
        let part = self.parts.remove(at)?;
        self.held -= part.held() + part.request.metadata.footprint();
        Some(part)
    }

    /// Called when the input is drained: returns the first request that must not be held any longer.
    pub(super) fn next(&mut self) -> Option<HeldRequest> {
        let at = match self.overdue.min(self.parts.len()) {
            0 => self.parts.iter().position(|part| !part.has_unary_request)?,
            overdue => {
                self.overdue = overdue - 1;
                0
            }
        };
        self.remove(at)
    }

    /// Marks requests that have been held for too long.
    pub(super) fn tick(&mut self, now: Duration, pace: &SlowPeerGuard) {
        for part in &mut self.parts {
            // It is opened long before it times out, and checked then.
            part.clock.tick(now, true, pace);
        }
        if self.parts.is_empty() {
            self.since = None;
        } else if now.saturating_sub(*self.since.get_or_insert(now)) >= MAX_WAIT {
            self.overdue = self.parts.len();
            self.since = Some(now);
        }
    }

    /// Copies pieces that outlive the read buffer in which they arrived.
    pub(super) fn detach_from_read(&mut self) {
        self.overdue = 0;
        self.parts.iter_mut().for_each(HeldRequest::detach_from_read);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the total size of held requests in bytes.
    pub(in crate::http_server::h2) fn held(&self) -> usize {
        self.held
    }

    /// Returns the streams of held requests. Asserts that the counters are correct.
    pub(in crate::http_server::h2) fn audit(&self) -> impl Iterator<Item = u32> {
        let held = |part: &HeldRequest| part.held() + part.request.metadata.footprint();
        let held: usize = self.parts.iter().map(held).sum();
        assert_eq!(self.held, held, "bytes that are kept back");
        self.parts.iter().map(|part| part.stream)
    }

    /// Bodies usually arrive in the order of their heads.
    fn position(&self, stream: u32) -> Option<usize> {
        self.parts.iter().position(|part| part.stream == stream)
    }
}

//! Requests of which a part has come, and is kept back: the rest of it may make them whole, and a whole call costs far
//! less than one that is opened.
//!
//! Some peers send the heads of all their calls before the first body, others end a request by a frame of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::SlowPeerGuard;

use super::clock::Clock;
use crate::grpc::dialect::Dialect;
use crate::grpc::frame;
use crate::grpc::request::Request;

/// A request whose end has not come.
#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) stream: u32,
    pub(super) request: Arc<Request>,
    /// The first piece of its message, as it came.
    first: Bytes,
    /// All of its message that has come, in memory of its own.
    gathered: BytesMut,
    clock: Clock,
}

/// Bytes of a message for the rest of which a request waits. A longer one comes in several frames anyway.
const MOST: usize = 16 << 10;

impl HeldRequest {
    /// What has come of its message, and since when it does.
    pub(super) fn into_body(self) -> (u32, Arc<Request>, Bytes, Clock) {
        let body = if self.gathered.is_empty() { self.first } else { self.gathered.freeze() };
        (self.stream, self.request, body, self.clock)
    }

    /// Bytes of its message that have come.
    fn held(&self) -> usize {
        self.first.len() + self.gathered.len()
    }

    /// Takes a piece. `false`, and nothing is taken, if there is no use in waiting for the rest.
    fn add(&mut self, piece: &Bytes, limit: usize) -> bool {
        let has = self.held();
        if !self.request.takes_one || self.request.dialect == Dialect::WebText || has + piece.len() > MOST {
            return false;
        }
        if has == 0 {
            self.first = piece.clone();
        } else {
            self.detach_from_read();
            self.gathered.extend_from_slice(piece);
        }
        let body = if self.first.is_empty() { &self.gathered[..] } else { &self.first[..] };
        if self.request.dialect.is_sole() || frame::may_be_sole(body, limit.min(MOST)) {
            self.clock.receive(piece.len());
            return true;
        }
        self.gathered.truncate(has);
        self.first.truncate(has);
        false
    }

    /// Keeps no longer the whole read alive by which the first piece came.
    fn detach_from_read(&mut self) {
        if !self.first.is_empty() {
            self.gathered = BytesMut::from(&self.first[..]);
            self.first = Bytes::new();
        }
    }
}

/// Requests that are kept back, in the order of their heads.
#[derive(Debug, Default)]
pub(in crate::http_server::h2) struct HeldRequests {
    parts: VecDeque<HeldRequest>,
    /// Bytes of all of them.
    held: usize,
    /// How many of the first are not to wait any longer.
    overdue: usize,
    /// Since when some wait, to a tick.
    since: Option<Duration>,
}

/// How long a part of a call waits for the rest before the call is opened without it. Longer, and nobody would answer it
/// when its time is over.
const WAIT: Duration = Duration::from_millis(500);

impl HeldRequests {
    pub(super) fn push(&mut self, stream: u32, request: Arc<Request>) {
        self.held += request.metadata.footprint();
        self.parts.push_back(HeldRequest {
            stream,
            request,
            first: Bytes::new(),
            gathered: BytesMut::new(),
            clock: Clock::default(),
        });
    }

    /// Adds a piece behind which more comes. `false` if its request is not here, or is not to wait for the rest.
    pub(super) fn add(&mut self, stream: u32, piece: &Bytes, limit: usize) -> bool {
        let part = self.position(stream).and_then(|at| self.parts.get_mut(at));
        let is_added = part.is_some_and(|part| part.add(piece, limit));
        self.held += if is_added { piece.len() } else { 0 };
        is_added
    }

    /// Takes a request out.
    pub(super) fn take(&mut self, stream: u32) -> Option<HeldRequest> {
        let at = self.position(stream)?;
        self.remove(at)
    }

    fn remove(&mut self, at: usize) -> Option<HeldRequest> {
        let part = self.parts.remove(at)?;
        self.held -= part.held() + part.request.metadata.footprint();
        Some(part)
    }

    /// Nothing more is here for now: the first request that is not to wait for the rest.
    pub(super) fn next(&mut self) -> Option<HeldRequest> {
        let at = match self.overdue.min(self.parts.len()) {
            0 => self.parts.iter().position(|part| !part.request.takes_one)?,
            overdue => {
                self.overdue = overdue - 1;
                0
            }
        };
        self.remove(at)
    }

    /// Those that have waited for too long wait no longer.
    pub(super) fn tick(&mut self, now: Duration, pace: &SlowPeerGuard) {
        for part in &mut self.parts {
            // It is opened long before it is too late, and judged then.
            part.clock.tick(now, true, pace);
        }
        if self.parts.is_empty() {
            self.since = None;
        } else if now.saturating_sub(*self.since.get_or_insert(now)) >= WAIT {
            self.overdue = self.parts.len();
            self.since = Some(now);
        }
    }

    /// What is here stays for longer than the read by which it came.
    pub(super) fn detach_from_read(&mut self) {
        self.overdue = 0;
        self.parts.iter_mut().for_each(HeldRequest::detach_from_read);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of all that are here.
    pub(in crate::http_server::h2) fn held(&self) -> usize {
        self.held
    }

    /// The streams of all that are here. Asserts that what is counted adds up.
    pub(in crate::http_server::h2) fn audited(&self) -> impl Iterator<Item = u32> {
        let held = |part: &HeldRequest| part.held() + part.request.metadata.footprint();
        let held: usize = self.parts.iter().map(held).sum();
        assert_eq!(self.held, held, "bytes that are kept back");
        self.parts.iter().map(|part| part.stream)
    }

    /// Bodies mostly come in the order of their heads.
    fn position(&self, stream: u32) -> Option<usize> {
        self.parts.iter().position(|part| part.stream == stream)
    }
}

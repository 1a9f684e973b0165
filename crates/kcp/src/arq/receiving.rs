use std::collections::VecDeque;

use bytes::BytesMut;

use crate::time::{Millis, distance};

/// What comes: segments in any order, any number of times, which leave in theirs, once.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    /// The first segment that has not become ready (`rcv_nxt`).
    next: u32,
    window: u16,
    /// From `next` on, with gaps.
    early: VecDeque<Option<Vec<u8>>>,
    /// In order, to be read.
    ready: VecDeque<Vec<u8>>,
    /// How much of the first was read.
    read: usize,
    acks: Vec<Ack>,
}

/// A segment to be acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ack {
    pub(super) sn: u32,
    pub(super) ts: Millis,
}

impl ReceiveWindow {
    pub(super) fn new(window: u16) -> Self {
        Self { next: 0, window, early: VecDeque::new(), ready: VecDeque::new(), read: 0, acks: Vec::new() }
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// How many more segments there is room for.
    pub(super) fn unused(&self) -> u16 {
        // No more than a window of them is ever ready.
        self.window - self.ready.len().min(usize::from(self.window)) as u16
    }

    /// Makes the window no larger than this.
    pub(super) fn narrow(&mut self, window: u16) {
        self.window = self.window.min(window);
    }

    /// Makes the window this large.
    pub(super) fn widen(&mut self, window: u16) {
        self.window = self.window.max(window);
        self.advance();
    }

    /// Takes a segment, unless it is beyond the window. What came before is acknowledged again.
    pub(super) fn push(&mut self, sn: u32, ts: Millis, data: &[u8]) {
        let ahead = distance(sn, self.next);
        if ahead >= i32::from(self.window) || self.acks.len() >= ACKS * usize::from(self.window) {
            return;
        }
        self.acks.push(Ack { sn, ts });
        let Ok(ahead) = usize::try_from(ahead) else { return };
        if self.early.len() <= ahead {
            self.early.resize(ahead + 1, None);
        }
        if let Some(slot @ None) = self.early.get_mut(ahead) {
            *slot = Some(data.to_vec());
            self.advance();
        }
    }

    /// Moves up to `most` bytes.
    pub(super) fn read(&mut self, into: &mut BytesMut, most: usize) -> usize {
        let mut left = most;
        while left > 0
            && let Some(first) = self.ready.front()
        {
            let unread = first.get(self.read..).unwrap_or_default();
            let taken = unread.len().min(left);
            into.extend_from_slice(&unread[..taken]);
            left -= taken;
            self.read += taken;
            if self.read >= first.len() {
                self.ready.pop_front();
                self.read = 0;
            }
        }
        self.advance();
        most - left
    }

    /// Throws away what nobody will read.
    pub(super) fn discard(&mut self) {
        while !self.ready.is_empty() {
            self.ready.clear();
            self.read = 0;
            self.advance();
        }
    }

    /// How many segments are kept, or have their place among those that are.
    pub(super) fn segments(&self) -> usize {
        self.early.len() + self.ready.len()
    }

    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn acks(&mut self) -> &mut Vec<Ack> {
        &mut self.acks
    }

    pub(super) fn unacknowledged(&self) -> usize {
        self.acks.len()
    }

    /// Lets go of memory that a burst has left.
    pub(super) fn rest(&mut self) {
        if self.acks.is_empty() && self.ready.is_empty() && self.early.is_empty() {
            (self.early, self.ready, self.acks) = Default::default();
        }
    }

    fn advance(&mut self) {
        while self.ready.len() < usize::from(self.window)
            && let Some(Some(_)) = self.early.front()
        {
            let data = self.early.pop_front().flatten().unwrap_or_default();
            self.next = self.next.wrapping_add(1);
            // An empty one has nothing to be read.
            if !data.is_empty() {
                self.ready.push_back(data);
            }
        }
    }
}

/// How many acknowledgements may wait, in windows: a peer that repeats itself faster than it is answered is not
/// listened to.
const ACKS: usize = 2;

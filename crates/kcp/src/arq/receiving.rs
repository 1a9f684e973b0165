use std::collections::VecDeque;

use bytes::BytesMut;

use crate::time::{Millis, distance};

/// Receive window: accepts segments in any order, possibly duplicated, and returns each of them once, in order.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    /// Sequence number of the first segment that is not ready (`rcv_nxt`).
    next: u32,
    window: u16,
    /// Segments from `next` on, with gaps.
    early: VecDeque<Option<Vec<u8>>>,
    /// Segments in order, ready to be read.
    ready: VecDeque<Vec<u8>>,
    /// Number of bytes of the first one that were read.
    read: usize,
    acks: Vec<Ack>,
}

/// A pending acknowledgement.
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

    /// Returns how many more segments can be accepted.
    pub(super) fn unused(&self) -> u16 {
        // At most one window of them is ever ready.
        self.window - self.ready.len().min(usize::from(self.window)) as u16
    }

    /// Reduces the window to at most `window`.
    pub(super) fn narrow(&mut self, window: u16) {
        self.window = self.window.min(window);
    }

    /// Enlarges the window to at least `window`.
    pub(super) fn widen(&mut self, window: u16) {
        self.window = self.window.max(window);
        self.advance();
    }

    /// Adds a segment, unless it is beyond the window. A duplicate is acknowledged again.
    pub(super) fn push(&mut self, sn: u32, ts: Millis, data: &[u8]) {
        let ahead = distance(sn, self.next);
        if ahead >= i32::from(self.window) || self.acks.len() >= MAX_ACK_WINDOWS * usize::from(self.window) {
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

    /// Moves up to `max` bytes.
    pub(super) fn read(&mut self, into: &mut BytesMut, max: usize) -> usize {
        let mut left = max;
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
        max - left
    }

    /// Discards data that will not be read.
    pub(super) fn discard(&mut self) {
        while !self.ready.is_empty() {
            self.ready.clear();
            self.read = 0;
            self.advance();
        }
    }

    /// Returns the number of buffered segments, including gaps between them.
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

    /// Releases memory left over from a burst.
    pub(super) fn shrink(&mut self) {
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
            // An empty segment has no data to read.
            if !data.is_empty() {
                self.ready.push_back(data);
            }
        }
    }
}

/// Limit of pending acknowledgements, in windows: a peer that retransmits faster than it is answered is ignored.
const MAX_ACK_WINDOWS: usize = 2;

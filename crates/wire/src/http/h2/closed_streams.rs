//! Recently closed streams. How a stream ended decides how late frames on it are handled.

/// Why a stream was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Both sides sent END_STREAM.
    Done,
    /// The peer reset it.
    ByPeer,
    /// We reset it: frames that the peer sent before it saw the RST_STREAM are ignored (RFC 9113, §5.4.2).
    ByUs,
}

/// The most recently closed streams, with a longer history of those that we reset.
#[derive(Debug, Default)]
pub(super) struct ClosedStreams {
    last: Ring<(u32, CloseReason)>,
    reset: Ring<u32>,
}

impl ClosedStreams {
    pub(super) fn add(&mut self, id: u32, reason: CloseReason) {
        match reason {
            CloseReason::ByUs => self.reset.push(id, MAX_RESETS),
            CloseReason::Done | CloseReason::ByPeer => self.last.push((id, reason), MAX_RECENT),
        }
    }

    /// Returns why a stream was closed; `None` if that is no longer known or the stream was never open.
    pub(super) fn close_reason(&self, id: u32) -> Option<CloseReason> {
        if self.reset.items.contains(&id) {
            return Some(CloseReason::ByUs);
        }
        self.last.items.iter().find(|(known, _)| *known == id).map(|(_, reason)| *reason)
    }
}

const MAX_RECENT: usize = 64;

/// As many streams as a peer may have open: all of them may be reset before the peer sees the first RST_STREAM.
const MAX_RESETS: usize = 1024;

/// Ring buffer of the most recent items.
#[derive(Debug)]
struct Ring<T> {
    items: Vec<T>,
    next: usize,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { items: Vec::new(), next: 0 }
    }
}

impl<T> Ring<T> {
    fn push(&mut self, item: T, max: usize) {
        if self.items.len() < max {
            return self.items.push(item);
        }
        self.items[self.next] = item;
        self.next = (self.next + 1) % max;
    }
}

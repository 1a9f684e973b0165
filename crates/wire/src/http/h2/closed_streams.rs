//! The streams that were closed last: what still comes for them depends on how they ended.

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Both sides sent all they had.
    Done,
    /// The peer reset it.
    ByPeer,
    /// We reset it: what the peer sent before it knew is ignored (RFC 9113, §5.4.2).
    ByUs,
}

/// The last streams that were closed, and a longer memory of those that we reset.
#[derive(Debug, Default)]
pub(super) struct ClosedStreams {
    last: Ring<(u32, CloseReason)>,
    reset: Ring<u32>,
}

impl ClosedStreams {
    pub(super) fn add(&mut self, id: u32, how: CloseReason) {
        match how {
            CloseReason::ByUs => self.reset.push(id, RESETS),
            CloseReason::Done | CloseReason::ByPeer => self.last.push((id, how), LAST),
        }
    }

    /// How a stream ended; `None` if that is not known any more, or it was never open.
    pub(super) fn close_reason(&self, id: u32) -> Option<CloseReason> {
        if self.reset.items.contains(&id) {
            return Some(CloseReason::ByUs);
        }
        self.last.items.iter().find(|(known, _)| *known == id).map(|(_, how)| *how)
    }
}

const LAST: usize = 64;

/// As many as a peer may have open: all may be reset before it hears of the first.
const RESETS: usize = 1024;

/// The last things of some kind.
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
    fn push(&mut self, item: T, most: usize) {
        if self.items.len() < most {
            return self.items.push(item);
        }
        self.items[self.next] = item;
        self.next = (self.next + 1) % most;
    }
}

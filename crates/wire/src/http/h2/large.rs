//! State of a connection for large messages of its peer.

use super::frame::Header;

/// Whether longer frames were announced, and which one is being read.
#[derive(Debug, Default)]
pub(super) struct LargeMessages {
    /// Full DATA frames received and consumed before longer ones were announced.
    pub(super) full_frames: u8,
    /// Longer frames were announced: the peer may send them.
    pub(super) is_announced: bool,
    /// The long frame whose payload is taken in parts.
    pub(super) current: Option<LongFrame>,
    /// Bytes in the inbox when a long frame was last found incomplete.
    pub(super) arrived: usize,
    /// The inbox may lie in a buffer that was made for a long frame.
    pub(super) in_long_read: bool,
}

/// A long frame whose header was taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum LongFrame {
    /// Data that arrive slowly. The length is that of the rest.
    Data(Header),
    /// A frame of an unknown type, which is ignored, and the bytes that follow of it.
    Ignored(usize),
}

impl LargeMessages {
    /// Whether a part of a long frame was taken. Its rest comes next.
    pub(super) fn is_within_frame(&self) -> bool {
        self.current.is_some()
    }

    /// Whether a long frame is being ignored.
    pub(super) fn ignores(&self) -> bool {
        matches!(self.current, Some(LongFrame::Ignored(_)))
    }
}

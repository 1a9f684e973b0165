//! State of receiving long frames.

use super::frame::Header;

/// A frame of more bytes is read into a buffer of its own.
pub(super) const LONG_READ: usize = 64 << 10;

/// Whether longer frames were announced, and which one is being read.
#[derive(Debug, Default)]
pub(super) struct LongFrameState {
    /// Full DATA frames that were consumed before longer ones were announced.
    pub(super) full_frames: u8,
    /// Longer frames were announced: the peer may send them.
    pub(super) is_announced: bool,
    /// The long frame whose payload is taken in parts.
    pub(super) current: Option<LongFrame>,
    /// Length of the inbox when a long frame was last found incomplete.
    pub(super) inbox_len_at_last_check: usize,
    /// The inbox may be a buffer that was allocated for a long frame.
    pub(super) inbox_is_long_buffer: bool,
}

/// A long frame whose header was taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum LongFrame {
    /// Data that arrive slowly. The length is that of the rest.
    Data(Header),
    /// A frame of an unknown type, which is ignored, and the bytes that follow of it.
    Ignored(usize),
}

impl LongFrameState {
    /// Whether a part of a long frame was taken. Its rest comes next.
    pub(super) fn is_within_frame(&self) -> bool {
        self.current.is_some()
    }

    /// Whether a long frame is being ignored.
    pub(super) fn is_ignoring(&self) -> bool {
        matches!(self.current, Some(LongFrame::Ignored(_)))
    }
}

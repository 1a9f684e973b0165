//! Longer frames and wider windows for peers that send much.
//!
//! A new peer gets `Config::frame` and `Config::window`. Larger limits are announced after two full DATA frames, of at
//! least 16 KiB each, were consumed.

use polyrpc_core::Outbox;

use super::connection::{Config, Connection};
use super::frame;
use super::send::MAX_GROWTH;
use super::settings::{DEFAULT_FRAME, INITIAL_WINDOW_SIZE, LONGEST_FRAME, MAX_FRAME_SIZE};
use super::stream::Role;

/// Number of consumed full DATA frames after which longer ones are announced.
const FULL_FRAMES: u8 = 2;

impl<T: Default> Connection<T> {
    /// Counts DATA frames of at least 16 KiB of which data were consumed: others may belong to a request that is not
    /// authenticated. After [`FULL_FRAMES`], longer ones are announced (RFC 9113, §6.5: SETTINGS may be sent at any
    /// time).
    #[cold]
    pub(super) fn count_full_frames(&mut self, frames: u8, out: &mut Outbox) {
        if self.long_frame.is_announced || !self.config.has_long_frames() {
            return;
        }
        self.long_frame.full_frames = self.long_frame.full_frames.saturating_add(frames);
        if self.long_frame.full_frames >= FULL_FRAMES {
            self.announce_long_frames(out);
        }
    }

    /// Announces longer frames. The peer may use them as soon as it has read this, before it acknowledges them.
    ///
    /// A server widens the windows of all streams, so that a request need not wait for a window. A client widens that of
    /// each new stream ([`widen_window`](Self::widen_window)), as long as not too many are wide: its callers may read
    /// their responses as slowly as they like, and must not use up the window of the connection for others.
    fn announce_long_frames(&mut self, out: &mut Outbox) {
        self.long_frame.is_announced = true;
        let frame = (MAX_FRAME_SIZE, self.longest_frame() as u32);
        let window = self.config.wide_window();
        match self.role {
            Role::Server if window > self.initial_window => {
                frame::settings(out.buffer(), &[(INITIAL_WINDOW_SIZE, window), frame]);
                self.widen_all_windows(window - self.initial_window);
            }
            _ => frame::settings(out.buffer(), &[frame]),
        }
    }

    /// Widens the receive windows of all streams, open ones included (RFC 9113, §6.9.2).
    fn widen_all_windows(&mut self, more: u32) {
        self.initial_window += more;
        for stream in self.streams.iter_mut() {
            stream.window += more;
            stream.receive_window += i64::from(more);
        }
    }

    /// Widens the receive window of a stream that a client has just opened, if the server sends much.
    pub(super) fn widen_window(&mut self, id: u32, out: &mut Outbox) {
        if !self.long_frame.is_announced || self.role != Role::Client {
            return;
        }
        let growth = self.config.wide_window() - self.initial_window;
        if growth == 0 || self.growth + growth as usize > MAX_GROWTH {
            return;
        }
        if let Some(stream) = self.streams.get_mut(id) {
            self.growth += growth as usize;
            stream.window += growth;
            stream.receive_window += i64::from(growth);
            frame::window_update(out.buffer(), id, growth);
        }
    }

    /// Length of the longest frame that the peer may send.
    pub(super) fn longest_frame(&self) -> usize {
        let announced = if self.long_frame.is_announced { self.config.large_frame } else { 0 };
        (self.config.frame.max(announced) as usize).clamp(DEFAULT_FRAME, LONGEST_FRAME)
    }
}

impl Config {
    /// Whether longer frames are announced to peers that send much.
    fn has_long_frames(&self) -> bool {
        self.large_frame > self.frame && self.large_frame as usize > DEFAULT_FRAME
    }

    /// Initial window of a stream of a peer that sends much.
    fn wide_window(&self) -> u32 {
        self.large_window.min(self.max_window).max(self.window)
    }
}

//! State of one stream: its halves, its windows, and the data queued for sending.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

/// Which halves of a stream are open.
///
/// ```text
///                  HEADERS                    END_STREAM, either way
///   (idle) ──────────────────▶ Open ─────┬──────────────────▶ LocalDone ───┐  END_STREAM
///     │                                  └──────────────────▶ RemoteDone ──┤  the other way
///     │      HEADERS with END_STREAM                              ▲        ▼
///     └───────────────────────────────────────────────────────────┘     (closed)
///
///   RST_STREAM, either way, closes a stream from any state.
/// ```
///
/// Idle streams are those above the highest number seen; closed ones are forgotten (RFC 9113, §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Both sides may send.
    Open,
    /// We have sent END_STREAM.
    LocalDone,
    /// The peer has sent END_STREAM.
    RemoteDone,
}

#[derive(Debug)]
pub(super) struct Stream<T> {
    /// Data stored by the layer above.
    pub(super) data: T,
    pub(super) state: State,
    /// Send window; negative after the peer reduced its initial window size.
    pub(super) send_window: i64,
    /// Receive window: how much the peer may still send.
    pub(super) receive_window: i64,
    /// Full size of the receive window granted to the peer.
    pub(super) window: u32,
    /// Consumed bytes whose WINDOW_UPDATE was not sent yet.
    pub(super) credit: u32,
    /// Bytes received and not consumed yet.
    pub(super) unread: usize,
    /// Bytes outstanding according to `content-length`.
    pub(super) expected: Option<u64>,
    /// The message's headers were received; data and trailers follow.
    pub(super) headed: bool,
    /// DATA frames of at least 16 KiB received, until some of their data is consumed.
    pub(super) full_frames: u8,
    /// Number of the most recent consecutive DATA frames that were empty and without END_STREAM.
    pub(super) empty_frames: u32,
    /// Data queued for the peer's windows.
    pub(super) queue: VecDeque<Bytes>,
    /// Bytes in `queue`.
    pub(super) queued: usize,
    /// The data sent after the queue.
    pub(super) last: SendEnd,
    /// The stream is in the list of those blocked on the connection's window.
    pub(super) blocked: bool,
    /// Since when the peer has read nothing of the final data, as measured by ticks.
    pub(super) stalled: Option<Duration>,
}

/// How our half of a stream ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendEnd {
    /// Not known yet.
    Unknown,
    /// END_STREAM on the last data.
    Data,
    /// Trailers, as a header block that does not use the dynamic table.
    Trailers(Bytes),
}

impl<T: Default> Stream<T> {
    pub(super) fn new(state: State, send_window: u32, window: u32) -> Self {
        Self {
            data: T::default(),
            state,
            send_window: send_window.into(),
            receive_window: window.into(),
            window,
            credit: 0,
            unread: 0,
            expected: None,
            headed: false,
            full_frames: 0,
            empty_frames: 0,
            queue: VecDeque::new(),
            queued: 0,
            last: SendEnd::Unknown,
            blocked: false,
            stalled: None,
        }
    }
}

impl<T> Stream<T> {
    /// Whether the peer may still send.
    pub(super) fn receives(&self) -> bool {
        self.state != State::RemoteDone
    }

    /// Whether received data is still needed: a server that has sent its whole response discards the rest of the
    /// request and grants no further window (`receive.rs`, `discard_late_data`).
    pub(super) fn is_read(&self, role: Role) -> bool {
        self.receives() && (role == Role::Client || self.sends())
    }

    /// Whether more data may be queued: the end was not queued yet.
    pub(super) fn sends(&self) -> bool {
        self.state != State::LocalDone && self.last == SendEnd::Unknown
    }

    /// Whether the end of the stream is queued but not sent.
    pub(super) fn is_ending(&self) -> bool {
        self.last != SendEnd::Unknown && !self.queue.is_empty()
    }

    /// Whether less than `unsent` bytes are queued, in few pieces: one of few bytes takes more than a hundred of memory.
    pub(super) fn has_room(&self, unsent: usize) -> bool {
        self.queued < unsent && self.queue.len() < PIECES
    }

    /// Whether everything that was queued has been sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Pieces of data from which a stream has no room: those of 256 messages with their prefixes.
const PIECES: usize = 512;

/// Side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Client,
}

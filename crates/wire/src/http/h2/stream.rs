//! One stream: how far it has come, what may be sent and received on it, and what waits to be sent.

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
    /// Both sides send.
    Open,
    /// We have sent all.
    LocalDone,
    /// The peer has sent all.
    RemoteDone,
}

#[derive(Debug)]
pub(super) struct Stream<T> {
    /// What the layer above keeps with it.
    pub(super) data: T,
    pub(super) state: State,
    /// How much the peer takes; negative after it made its windows smaller.
    pub(super) send_window: i64,
    /// How much the peer may send.
    pub(super) receive_window: i64,
    /// How large the window is that the peer is given.
    pub(super) window: u32,
    /// What was taken and not told to the peer yet.
    pub(super) credit: u32,
    /// What was received and not taken yet.
    pub(super) unread: usize,
    /// What `content-length` said is still to come.
    pub(super) expected: Option<u64>,
    /// The head of the message was received; what follows are its data and trailers.
    pub(super) headed: bool,
    /// DATA frames without data that came last, and ended nothing.
    pub(super) empty_frames: u32,
    /// What waits for the peer's windows.
    pub(super) queue: VecDeque<Bytes>,
    /// Bytes in `queue`.
    pub(super) queued: usize,
    /// What follows the queue.
    pub(super) last: SendEnd,
    /// It is among those that wait for the connection's window.
    pub(super) blocked: bool,
    /// Since when the peer has taken nothing of the end of what is sent, as told by the last ticks.
    pub(super) stalled: Option<Duration>,
}

/// How what we send on a stream ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendEnd {
    /// That is not known yet.
    Unknown,
    /// With the last of the data.
    Data,
    /// With trailers, as a header block that depends on no table.
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

    /// Whether what the peer sends is of use: a server that has given all of its answer throws the rest of the request
    /// away, and grants no more of it (`receive.rs`, `too_late`).
    pub(super) fn is_read(&self, role: Role) -> bool {
        self.receives() && (role == Role::Client || self.sends())
    }

    /// Whether more may be given to be sent: the end was not.
    pub(super) fn sends(&self) -> bool {
        self.state != State::LocalDone && self.last == SendEnd::Unknown
    }

    /// Whether the last of what is to be sent was given, and waits.
    pub(super) fn is_ending(&self) -> bool {
        self.last != SendEnd::Unknown && !self.queue.is_empty()
    }

    /// Whether everything that was given to be sent has been.
    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Which side of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Client,
}

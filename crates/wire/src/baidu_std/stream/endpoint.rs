use bytes::{Bytes, BytesMut};
use polyrpc_core::Outbox;

use super::frame;
use super::window::Window;
use crate::baidu_std::meta::StreamSettings;

/// One end of a stream.
///
/// ```text
///   the call is sent       the response accepts           the peer's CLOSE
///  ─────────────────▶ Opening ──────────────▶ Connected ─────────────────▶ Closed
///                        │                     ▲   │                         │
///                        │  the server accepts │   │ CLOSE or RST of ours,   │ all was
///                        │ ────────────────────┘   │ the peer's RST          │ taken
///                        ▼                         ▼                         ▼
///                       gone                      gone                      gone
/// ```
///
/// An end that its user closed, and that waits for the peer's acknowledgement, is `Leaving` until the peer's `CLOSE` or
/// `RST`.
#[derive(Debug)]
pub(super) struct StreamEndpoint {
    state: State,
    /// Send window.
    pub(super) window: Window,
    /// Start of a message that is split over several frames.
    fragments: BytesMut,
    /// Bytes received and not consumed, including those of `fragments`.
    unread: usize,
    /// Bytes consumed since the stream was opened.
    consumed: u64,
}

#[derive(Debug)]
enum State {
    /// The call with this correlation id is pending. Further streams of a call may receive messages already; on the
    /// first one, the first message is the response.
    Opening {
        call: u64,
        awaits_response: bool,
    },
    Connected(Remote),
    /// The peer has closed the stream.
    Closed,
    /// This side has closed the stream and waits for the peer's `CLOSE`.
    Leaving,
}

/// The peer's end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) id: i64,
    /// It accepts messages.
    pub(super) writable: bool,
    /// Its sender requires feedback on consumed bytes.
    pub(super) need_feedback: bool,
}

impl Remote {
    /// Returns the peer's ends, in the order in which both sides pair them.
    pub(super) fn all(settings: &StreamSettings) -> impl Iterator<Item = Self> {
        let (writable, need_feedback) = (settings.writable, settings.need_feedback);
        settings.ids().map(move |id| Self { id, writable, need_feedback })
    }
}

impl StreamEndpoint {
    pub(super) fn new_opening(window: Window, call: u64, awaits_response: bool) -> Self {
        Self::new(State::Opening { call, awaits_response }, window)
    }

    pub(super) fn new_connected(window: Window, remote: Remote) -> Self {
        Self::new(State::Connected(remote), window)
    }

    fn new(state: State, window: Window) -> Self {
        Self { state, window, fragments: BytesMut::new(), unread: 0, consumed: 0 }
    }

    /// Connects the end after the response named the peer's id. Feedback on bytes consumed before could not be sent.
    pub(super) fn connect(&mut self, id: u64, remote: Remote, out: &mut Outbox) {
        if let State::Opening { .. } = self.state {
            self.state = State::Connected(remote);
            if self.consumed > 0 {
                self.send_feedback(id, out);
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Leaving)
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    pub(super) fn awaits_response(&self) -> bool {
        self.awaited_call().is_some()
    }

    /// Returns the call whose response is expected on this stream.
    pub(super) fn awaited_call(&self) -> Option<u64> {
        match self.state {
            State::Opening { call, awaits_response: true } => Some(call),
            _ => None,
        }
    }

    /// The response was received on this stream; messages follow.
    pub(super) fn handle_response(&mut self) {
        if let State::Opening { awaits_response, .. } = &mut self.state {
            *awaits_response = false;
        }
    }

    /// Whether `bytes` more bytes may be buffered: at most `message` for a single message, at most `unread` for
    /// several.
    pub(super) fn fits(&self, bytes: usize, message: usize, unread: usize) -> bool {
        let whole = self.unread.saturating_sub(self.fragments.len());
        self.fragments.len() + bytes <= message && (whole == 0 || self.unread + bytes <= unread)
    }

    /// Appends a frame's data to the current message. Returns the message when it is complete.
    pub(super) fn join(&mut self, data: Bytes, continues: bool) -> Option<Bytes> {
        if !self.awaits_response() {
            self.unread += data.len();
        }
        if self.fragments.is_empty() && !continues {
            return Some(data);
        }
        self.fragments.extend_from_slice(&data);
        (!continues).then(|| std::mem::take(&mut self.fragments).freeze())
    }

    /// Bytes of an incomplete message.
    pub(super) fn incomplete(&self) -> usize {
        self.fragments.len()
    }

    pub(super) fn unread(&self) -> usize {
        self.unread
    }

    /// Records consumed messages and sends feedback. Returns how many bytes are no longer unread.
    pub(super) fn consume(&mut self, id: u64, bytes: usize, out: &mut Outbox) -> usize {
        let taken = bytes.min(self.unread.saturating_sub(self.fragments.len()));
        self.unread -= taken;
        self.consumed += taken as u64;
        if taken > 0 {
            self.send_feedback(id, out);
        }
        taken
    }

    fn send_feedback(&self, id: u64, out: &mut Outbox) {
        if let State::Connected(Remote { id: to, need_feedback: true, .. }) = self.state {
            frame::feedback(to, id.cast_signed(), self.consumed, out);
        }
    }

    /// Sends a message, if the peer's end accepts any.
    pub(super) fn send(&mut self, id: u64, message: Bytes, out: &mut Outbox) {
        if let State::Connected(Remote { id: to, writable: true, .. }) = self.state {
            self.window.produce(message.len());
            frame::data(to, id.cast_signed(), message, out);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        match self.state {
            State::Opening { .. } => false,
            State::Connected(_) => self.window.has_room(),
            State::Closed | State::Leaving => true,
        }
    }

    pub(super) fn is_writable(&self) -> bool {
        match self.state {
            State::Opening { .. } => true,
            State::Connected(remote) => remote.writable,
            State::Closed | State::Leaving => false,
        }
    }

    /// Sends `CLOSE`. An end whose counterpart is not known yet cannot send it.
    pub(super) fn write_close(&self, id: u64, out: &mut Outbox) {
        if let State::Connected(remote) = self.state {
            frame::close(remote.id, id.cast_signed(), out);
        }
    }

    /// Sends `RST`; `source` is the peer's id if the stream is not connected yet.
    pub(super) fn reset(&self, source: Option<i64>, out: &mut Outbox) {
        let to = match self.state {
            State::Opening { .. } => source,
            State::Connected(remote) => Some(remote.id),
            State::Closed | State::Leaving => None,
        };
        if let Some(to) = to {
            frame::reset(to, out);
        }
    }

    /// Sends `CLOSE` and discards unread messages.
    pub(super) fn close(&mut self, id: u64, out: &mut Outbox) {
        self.write_close(id, out);
        self.fragments = BytesMut::new();
        self.unread = 0;
        self.state = State::Leaving;
    }

    /// The peer has closed the stream: unread messages may still be consumed.
    pub(super) fn handle_close(&mut self) {
        self.state = State::Closed;
    }
}

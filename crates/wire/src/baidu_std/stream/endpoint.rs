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
/// An end that was closed by its user, who waits until the peer knows, is `Leaving` until the peer's `CLOSE` or `RST`.
#[derive(Debug)]
pub(super) struct StreamEndpoint {
    state: State,
    /// What was sent.
    pub(super) window: Window,
    /// The beginning of a message that comes in several frames.
    fragments: BytesMut,
    /// Bytes that came and were not taken, those of `fragments` among them.
    unread: usize,
    /// Bytes that were taken since the stream began.
    consumed: u64,
}

#[derive(Debug)]
enum State {
    /// The call with this correlation id is not answered. Further streams of a call may have messages already; on the
    /// first, the first message is the response.
    Opening {
        call: u64,
        awaits_response: bool,
    },
    Connected(Remote),
    /// The peer has closed it.
    Closed,
    /// This side has closed it, and waits for the peer to say the same.
    Leaving,
}

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) id: i64,
    /// It takes messages.
    pub(super) writable: bool,
    /// It waits until what it sent was taken.
    pub(super) need_feedback: bool,
}

impl Remote {
    /// The other ends, in the order in which both sides pair them.
    pub(super) fn all(settings: &StreamSettings) -> impl Iterator<Item = Self> {
        let (writable, need_feedback) = (settings.writable, settings.need_feedback);
        settings.ids().map(move |id| Self { id, writable, need_feedback })
    }
}

impl StreamEndpoint {
    pub(super) fn opening(window: Window, call: u64, awaits_response: bool) -> Self {
        Self::new(State::Opening { call, awaits_response }, window)
    }

    pub(super) fn connected(window: Window, remote: Remote) -> Self {
        Self::new(State::Connected(remote), window)
    }

    fn new(state: State, window: Window) -> Self {
        Self { state, window, fragments: BytesMut::new(), unread: 0, consumed: 0 }
    }

    /// The response has named the other end. What was taken before could not be told.
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

    /// The call whose response is to come on this stream.
    pub(super) fn awaited_call(&self) -> Option<u64> {
        match self.state {
            State::Opening { call, awaits_response: true } => Some(call),
            _ => None,
        }
    }

    /// The response has come on it; what follows are messages.
    pub(super) fn has_response(&mut self) {
        if let State::Opening { awaits_response, .. } = &mut self.state {
            *awaits_response = false;
        }
    }

    /// Whether so many more bytes may wait: of one message no more than `message`, of several no more than `unread`.
    pub(super) fn fits(&self, bytes: usize, message: usize, unread: usize) -> bool {
        let whole = self.unread.saturating_sub(self.fragments.len());
        self.fragments.len() + bytes <= message && (whole == 0 || self.unread + bytes <= unread)
    }

    /// Puts a frame's data behind what came of its message. Returns the message when it is whole.
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

    /// Bytes of a message that is not whole.
    pub(super) fn incomplete(&self) -> usize {
        self.fragments.len()
    }

    pub(super) fn unread(&self) -> usize {
        self.unread
    }

    /// Notes that messages were taken, and tells. Returns how many bytes wait no more.
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

    /// Sends a message, if there is anybody who takes it.
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

    /// Says that this side is done. One whose other end is not known yet can tell nobody.
    pub(super) fn close(&self, id: u64, out: &mut Outbox) {
        if let State::Connected(remote) = self.state {
            frame::close(remote.id, id.cast_signed(), out);
        }
    }

    /// Says that this side has failed; `source` is who is known to be there if the stream is not connected yet.
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

    /// Says that this side is done, and forgets what came and was not taken.
    pub(super) fn close(&mut self, id: u64, out: &mut Outbox) {
        self.close(id, out);
        self.fragments = BytesMut::new();
        self.unread = 0;
        self.state = State::Leaving;
    }

    /// The peer has closed it: what came may still be taken.
    pub(super) fn closed_by_peer(&mut self) {
        self.state = State::Closed;
    }
}

//! GOAWAY frames (RFC 9113, §6.8): two for a graceful shutdown, one when a connection fails, and those received from the
//! peer.

use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::Outbox;

use super::connection::{Connection, Event, FrameOutcome, ShutdownState};
use super::frame::{self, Header};
use super::status::{ErrorCode, Fault, connection_error};
use super::stream::{Role, State};

/// How long to wait for the ACK of the PING that follows the first GOAWAY.
const GO_AWAY_TIMEOUT: Duration = Duration::from_secs(2);

/// Payload of that PING.
pub(super) const GO_AWAY_PING: [u8; 8] = *b"polyrpc!";

/// Limit in bytes of the debug data kept from a peer's GOAWAY.
const MAX_REASON: usize = 256;

impl<T: Default> Connection<T> {
    /// Starts a graceful shutdown (RFC 9113, §6.8): sends a GOAWAY and a PING, and once the peer has acknowledged the
    /// PING, a second GOAWAY with the last stream.
    pub fn start_graceful_shutdown(&mut self, out: &mut Outbox) {
        if self.shutdown != ShutdownState::NotStarted {
            return;
        }
        self.send_settings(out);
        self.shutdown = ShutdownState::Announced;
        frame::go_away(out.buffer(), frame::MAX_STREAM_ID, ErrorCode::NO_ERROR, "");
        frame::ping(out.buffer(), GO_AWAY_PING, false);
    }

    /// Sends the final GOAWAY, which names the last stream that is processed.
    pub(super) fn send_final_go_away(&mut self, out: &mut Outbox) {
        if self.shutdown == ShutdownState::Announced {
            self.shutdown = ShutdownState::Final(self.last_theirs);
            // The peer may have opened others by now.
            self.guard.expect_late_streams(self.whole_window());
            frame::go_away(out.buffer(), self.last_theirs, ErrorCode::NO_ERROR, "");
        }
    }

    /// Sends the final GOAWAY if the peer has not acknowledged the PING in time.
    pub(super) fn send_final_go_away_if_overdue(&mut self, now: Duration, out: &mut Outbox) {
        if self.shutdown == ShutdownState::Announced
            && now.saturating_sub(*self.shutdown_started.get_or_insert(now)) >= GO_AWAY_TIMEOUT
        {
            self.send_final_go_away(out);
        }
    }

    /// Whether a graceful shutdown was started.
    pub fn has_started_shutdown(&self) -> bool {
        self.shutdown != ShutdownState::NotStarted
    }

    /// Whether the final GOAWAY of a graceful shutdown was sent: the peer has read the first one, or had the time to.
    pub fn has_sent_final_go_away(&self) -> bool {
        matches!(self.shutdown, ShutdownState::Final(_))
    }

    /// Whether the shutdown is complete: nothing remains to be sent, whatever the peer still sends.
    pub fn is_shut_down(&self) -> bool {
        matches!(self.shutdown, ShutdownState::Final(_))
            && self.streams.iter().all(|stream| stream.state == State::LocalDone)
    }

    /// Ends the connection with a GOAWAY that carries the reason.
    #[cold]
    pub fn abort(&mut self, code: ErrorCode, why: &str, out: &mut Outbox) {
        self.send_settings(out);
        // The last stream identifier must not increase (RFC 9113, §6.8).
        let last = match self.shutdown {
            ShutdownState::Final(last) => last,
            ShutdownState::NotStarted | ShutdownState::Announced => self.last_theirs,
        };
        frame::go_away(out.buffer(), last, code, why);
    }

    /// Whether a stream was opened after the last one named in our GOAWAY.
    pub(super) fn is_beyond_go_away(&self, id: u32) -> bool {
        self.role == Role::Server && matches!(self.shutdown, ShutdownState::Final(last) if id > last)
    }

    /// Processes the peer's GOAWAY.
    pub(super) fn handle_go_away(&mut self, header: Header, payload: &[u8]) -> Result<FrameOutcome, Fault> {
        self.guard.burst += 1;
        if header.stream != 0 {
            return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "GOAWAY on a stream"));
        }
        let Some((&[l0, l1, l2, l3, c0, c1, c2, c3], reason)) = payload.split_first_chunk::<8>() else {
            return Err(connection_error(ErrorCode::FRAME_SIZE_ERROR, "GOAWAY too short"));
        };
        let last = u32::from_be_bytes([l0, l1, l2, l3]) & frame::STREAM_ID_MASK;
        let code = ErrorCode(u32::from_be_bytes([c0, c1, c2, c3]));
        let reason = Bytes::copy_from_slice(&reason[..reason.len().min(MAX_REASON)]);
        Ok(FrameOutcome::Event(Event::GoAway { last, code, reason }))
    }
}

//! What the time does to a connection.

use std::time::Duration;

use polyrpc_core::Outbox;

use super::connection::{Connection, ShutdownState};
use super::status::ErrorCode;
use super::stream::{Role, Stream};

/// How long a peer may take to answer the PING that tells when it has heard that we leave.
const FAREWELL: Duration = Duration::from_secs(2);

impl<T: Default> Connection<T> {
    /// Tells the connection the time, as the duration since a moment that never changes. Resets are forgiven, and streams
    /// are reset of which the peer takes nothing: it is these that are returned, and no event tells of them.
    pub fn tick(&mut self, now: Duration, out: &mut Outbox) -> Vec<u32> {
        self.guard.refill(now, self.config.resets_per_second);
        let stalled = if self.ending > 0 { self.reset_stalled(now, out) } else { Vec::new() };
        if self.leaving == ShutdownState::Announced
            && now.saturating_sub(*self.announced.get_or_insert(now)) >= FAREWELL
        {
            self.send_final_go_away(out);
        }
        stalled
    }

    /// Whether a clock runs, so that the connection must be [told the time](Self::tick) though nothing arrives.
    pub fn wants_ticks(&self) -> bool {
        self.ending > 0 || self.leaving == ShutdownState::Announced
    }

    /// Resets the streams whose answer is finished and waits, however short it is, of which the peer has taken nothing for
    /// too long. A client is patient with the end of a request on which little waits: its server may be slow.
    #[cold]
    fn reset_stalled(&mut self, now: Duration, out: &mut Outbox) -> Vec<u32> {
        let (unsent, stalled) = (self.config.unsent, self.config.stalled);
        // A stream that goes on is bounded by its room, and its caller may read as slowly as it likes.
        let least = if self.role == Role::Server { 0 } else { unsent + 1 };
        let waits =
            |(id, stream): (u32, &Stream<T>)| (stream.is_ending() && stream.queued >= least).then_some(id);
        let mut ids: Vec<u32> = self.streams.numbered().filter_map(waits).collect();
        ids.retain(|id| {
            let stream = self.streams.get_mut(*id);
            stream.is_some_and(|stream| now.saturating_sub(*stream.stalled.get_or_insert(now)) >= stalled)
        });
        ids.iter().for_each(|id| self.reset(*id, ErrorCode::CANCEL, out));
        ids
    }
}

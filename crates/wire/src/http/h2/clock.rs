//! Timeouts of a connection.

use std::time::Duration;

use polyrpc_core::Outbox;

use super::connection::{Connection, ShutdownState};
use super::status::ErrorCode;
use super::stream::{Role, Stream};

impl<T: Default> Connection<T> {
    /// Advances the connection's clock to `now`, the duration since a fixed moment. Refills the reset budget and resets
    /// streams of which the peer reads nothing. Returns the identifiers of the streams that were reset; no event is
    /// emitted for them.
    pub fn tick(&mut self, now: Duration, out: &mut Outbox) -> Vec<u32> {
        self.guard.refill(now, self.config.resets_per_second);
        let stalled = if self.ending > 0 { self.reset_stalled(now, out) } else { Vec::new() };
        self.send_final_go_away_if_overdue(now, out);
        stalled
    }

    /// Whether a timer is running, so that the connection must be [ticked](Self::tick) even if no bytes arrive.
    pub fn wants_ticks(&self) -> bool {
        self.ending > 0 || self.shutdown == ShutdownState::Announced
    }

    /// Resets the streams whose response is finished but still queued, however short it is, if the peer has read
    /// nothing of it for too long. A client tolerates a stalled end of a request if only a few bytes are queued: its
    /// server may be slow.
    #[cold]
    fn reset_stalled(&mut self, now: Duration, out: &mut Outbox) -> Vec<u32> {
        let (unsent, stalled) = (self.config.unsent, self.config.stalled);
        // A stream that is not finished is bounded by its buffer limit, and its caller may read as slowly as it likes.
        let min = if self.role == Role::Server { 0 } else { unsent + 1 };
        let waits =
            |(id, stream): (u32, &Stream<T>)| (stream.is_ending() && stream.queued >= min).then_some(id);
        let mut ids: Vec<u32> = self.streams.iter_with_ids().filter_map(waits).collect();
        ids.retain(|id| {
            let stream = self.streams.get_mut(*id);
            stream.is_some_and(|stream| now.saturating_sub(*stream.stalled.get_or_insert(now)) >= stalled)
        });
        ids.iter().for_each(|id| self.reset(*id, ErrorCode::CANCEL, out));
        ids
    }
}

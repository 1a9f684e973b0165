//! Connect backoff of a blocking client.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use polyrpc_core::{Code, Reply, Scope, Status};

use crate::client::connection::Backoff;
use crate::client::connection::connect_backoff::{BackoffChange, ConnectBackoff, ConnectPermit};
use crate::client::connection::connect_gate::{ended_early, log_failure, log_recovery};
use crate::client::retryable::is_connection_failure_before_start;
use crate::transport::Address;

/// [`ConnectBackoff`] that is shared by threads.
pub(super) struct BlockingConnectGate {
    backoff: Mutex<ConnectBackoff>,
    /// Signalled when a connection was confirmed or has failed.
    changed: Condvar,
}

impl BlockingConnectGate {
    pub(super) fn new(settings: Backoff) -> Self {
        Self { backoff: Mutex::new(ConnectBackoff::new(settings)), changed: Condvar::new() }
    }

    /// Waits until a connect may start, and returns when it started.
    ///
    /// # Errors
    ///
    /// The reason of the last failure, if it is too early to try again; or that the deadline has passed.
    pub(super) fn wait_turn(&self, deadline: Option<Instant>) -> Result<Instant, Status> {
        let mut backoff = self.lock();
        loop {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(Status::deadline_exceeded("no connection in time"));
            }
            let slot = match backoff.request_permit(now) {
                ConnectPermit::Now => return Ok(now),
                ConnectPermit::Refused(reason) => return Err(reason),
                ConnectPermit::At(slot) => deadline.map_or(slot, |deadline| deadline.min(slot)),
            };
            let waited = self.changed.wait_timeout(backoff, slot.saturating_duration_since(now));
            backoff = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records that a connection was established.
    pub(super) fn on_connect(&self) {
        self.lock().on_connect(Instant::now());
    }

    /// Records that the connect that started at `connect_start` failed.
    #[cold]
    pub(super) fn on_connect_error(&self, server: &Address, connect_start: Instant, reason: &Status) {
        let change = self.lock().on_connect_error(connect_start, Instant::now(), reason);
        self.report(&change, server, reason);
    }

    /// Records the outcome of the first call on a connection whose connect started at `connect_start`.
    #[cold]
    pub(super) fn record_first_call(
        &self,
        server: &Address,
        connect_start: Instant,
        ended: &Result<Option<Reply>, Status>,
    ) {
        let failure = match ended {
            Ok(None) => return,
            Ok(Some(reply)) => {
                reply.result.as_ref().err().filter(|status| is_connection_failure_before_start(status))
            }
            // A reply that is malformed or too long shows neither that the server is well nor that it is not.
            Err(status) if status.scope() == Scope::Connection && status.code() != Code::Unavailable => {
                return;
            }
            Err(status) if status.scope() == Scope::Connection => Some(status),
            // A reply that took too long, or a call that could not be sent, does not show that the server is unhealthy.
            Err(_) => return,
        };
        match failure {
            Some(status) => {
                let reason = ended_early(server, status);
                let change = self.lock().on_early_end(connect_start, Instant::now(), &reason);
                self.report(&change, server, &reason);
            }
            None => {
                let had_waited = self.lock().on_first_reply(Instant::now());
                self.changed.notify_all();
                log_recovery(server, had_waited);
            }
        }
    }

    fn report(&self, change: &BackoffChange, server: &Address, reason: &Status) {
        self.changed.notify_all();
        if *change == BackoffChange::BacksOff {
            log_failure(server, reason);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectBackoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

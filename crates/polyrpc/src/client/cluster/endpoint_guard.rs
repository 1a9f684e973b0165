use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polyrpc_core::Status;

use super::endpoint::Endpoint;
use super::snapshot::Snapshot;
use crate::client::balance::{AttemptCounts, AttemptOutcome};
use crate::runtime::now;

/// Attempt on a server, from the pick to its end. Dropping it before the end counts as a cancellation.
pub(in crate::client) struct EndpointGuard {
    snapshot: Arc<Snapshot>,
    index: usize,
    began: Instant,
    timeout: Option<Duration>,
    attempts: AttemptCounts,
    is_finished: AtomicBool,
}

impl EndpointGuard {
    /// Starts an attempt on the server with this index; `None` if there is no such index.
    pub(super) fn start(
        snapshot: Arc<Snapshot>,
        index: usize,
        began: Instant,
        timeout: Option<Duration>,
        attempts: AttemptCounts,
    ) -> Option<Box<Self>> {
        snapshot.endpoint(index)?.record_start();
        snapshot.pick.call_started(index, began);
        Some(Box::new(Self {
            snapshot,
            index,
            began,
            timeout,
            attempts,
            is_finished: AtomicBool::new(false),
        }))
    }

    pub(in crate::client) fn endpoint(&self) -> &Arc<Endpoint> {
        self.snapshot.endpoint(self.index).expect("the index is within the snapshot")
    }

    /// Number of servers to choose from.
    pub(super) fn endpoint_count(&self) -> usize {
        self.snapshot.len()
    }

    pub(super) fn latency(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }

    /// Records the outcome with the endpoint and the picker; only the first one counts.
    pub(in crate::client) fn finish(&self, failure: Option<&Status>) {
        if self.is_finished.swap(true, Ordering::Relaxed) {
            return;
        }
        let now = now();
        let outcome = AttemptOutcome {
            latency: now.saturating_duration_since(self.began),
            now,
            failure,
            timeout: self.timeout,
            attempts_left: self.attempts.left,
            attempts_made: self.attempts.made,
        };
        if self.endpoint().record_outcome(&outcome) {
            self.try_eject(now);
        }
        self.snapshot.pick.call_finished(self.index, &outcome);
    }

    #[cold]
    fn try_eject(&self, now: Instant) {
        let has_other_healthy = self.snapshot.has_other_healthy(self.index, now);
        self.endpoint().try_eject(self.endpoint_count(), has_other_healthy, now);
    }
}

impl Drop for EndpointGuard {
    fn drop(&mut self) {
        if !*self.is_finished.get_mut() {
            self.finish(Some(&Status::cancelled("the attempt was cancelled")));
        }
        self.endpoint().record_end();
    }
}

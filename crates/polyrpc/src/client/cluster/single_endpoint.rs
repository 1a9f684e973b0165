//! Calls to given servers, without a pick by the balancer.

use std::fmt;
use std::sync::Arc;

use polyrpc_core::{Call, Reply, Retry, Status};
use tokio::time::Instant;

use super::Channel;
use super::call_attempt::CallAttempt;
use super::endpoint::Endpoint;
use super::endpoint_guard::EndpointGuard;
use super::retry_loop::RoutingOptions;
use super::snapshot::Snapshot;
use crate::client::balance::AttemptCounts;
use crate::client::pool::Pool;
use crate::client::retryable::{failure, is_connection_failure_before_start};
use crate::discovery::Instance;
use crate::runtime::now;

/// One of the servers of a channel.
pub(in crate::client) struct SingleEndpoint {
    snapshot: Arc<Snapshot>,
    index: usize,
    instance: Instance,
    endpoint: Arc<Endpoint>,
    spares: bool,
}

impl Channel {
    /// Waits until there are servers, and returns all of them.
    pub(in crate::client) async fn single_endpoints(
        &self,
        deadline: Option<Instant>,
        patient: bool,
    ) -> Result<Vec<Arc<SingleEndpoint>>, Status> {
        let snapshot = match self.snapshot().filter(|snapshot| !snapshot.is_empty()) {
            Some(snapshot) => snapshot,
            None => self.servers(deadline, patient).await?,
        };
        let servers = snapshot.servers().enumerate().map(|(index, (endpoint, candidate))| SingleEndpoint {
            snapshot: snapshot.clone(),
            index,
            instance: candidate.instance().clone(),
            endpoint: endpoint.clone(),
            spares: self.shared.settings.resends_unprocessed,
        });
        Ok(servers.map(Arc::new).collect())
    }
}

impl SingleEndpoint {
    pub(in crate::client) fn instance(&self) -> &Instance {
        &self.instance
    }

    pub(in crate::client) fn pool(&self) -> &Arc<Pool> {
        self.endpoint.pool()
    }

    /// Whether a call that failed this way was not processed because the server is no longer listed.
    pub(in crate::client) fn has_left(&self, status: &Status) -> bool {
        self.pool().is_retired() && is_connection_failure_before_start(status)
    }

    /// Makes one call to this server, without retries. The picker is informed of the attempt.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call.
    pub(in crate::client) async fn call(
        &self,
        call: Call<'_>,
        routing: RoutingOptions,
    ) -> Result<Option<Reply>, Status> {
        let attempts = AttemptCounts { left: 0, made: 1 };
        let guard = EndpointGuard::start(self.snapshot.clone(), self.index, now(), call.timeout, attempts)
            .ok_or_else(|| Status::internal("a server without its index in the set"))?;
        let mut attempt = CallAttempt::new(self.pool(), call, routing.wait_for_ready, self.spares);
        let ended = attempt.call().await;
        let failure = failure(&ended);
        guard.finish(failure);
        if !attempt.has_left() {
            self.miss(failure);
        }
        ended
    }

    /// Handles that no connection took the call; the server is probed in the background.
    #[cold]
    fn miss(&self, failure: Option<&Status>) {
        match failure {
            Some(status) if status.retry() == Retry::Elsewhere && !self.endpoint.is_suspect() => {
                self.endpoint.mark_unavailable();
            }
            // There was no time to find out more.
            Some(_) => self.endpoint.suspect(),
            None => {}
        }
    }
}

impl fmt::Debug for SingleEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

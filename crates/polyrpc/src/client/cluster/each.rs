//! Calls to servers that nobody chose: each of them is meant.

use std::fmt;
use std::sync::Arc;

use polyrpc_core::{Call, Reply, Retry, Status};
use tokio::time::Instant;

use super::attempt::Attempt;
use super::course::Terms;
use super::endpoint::Endpoint;
use super::snapshot::Snapshot;
use super::visit::Visit;
use super::{Channel, now};
use crate::client::failure::{failure, reached_nobody};
use crate::client::pool::Pool;
use crate::discovery::Instance;

/// One of the servers of a channel.
pub(in crate::client) struct Server {
    snapshot: Arc<Snapshot>,
    place: usize,
    instance: Instance,
    endpoint: Arc<Endpoint>,
    spares: bool,
}

impl Channel {
    /// All servers there are, once there are any.
    pub(in crate::client) async fn each(
        &self,
        deadline: Option<Instant>,
        patient: bool,
    ) -> Result<Vec<Arc<Server>>, Status> {
        let snapshot = match self.snapshot().filter(|snapshot| !snapshot.is_empty()) {
            Some(snapshot) => snapshot,
            None => self.servers(deadline, patient).await?,
        };
        let servers = snapshot.servers().enumerate().map(|(place, (endpoint, candidate))| Server {
            snapshot: snapshot.clone(),
            place,
            instance: candidate.instance().clone(),
            endpoint: endpoint.clone(),
            spares: self.shared.settings.spares,
        });
        Ok(servers.map(Arc::new).collect())
    }
}

impl Server {
    pub(in crate::client) fn instance(&self) -> &Instance {
        &self.instance
    }

    pub(in crate::client) fn pool(&self) -> &Arc<Pool> {
        self.endpoint.pool()
    }

    /// Whether a call that failed so was not begun because the server is not listed any more.
    pub(in crate::client) fn has_left(&self, status: &Status) -> bool {
        self.pool().is_retired() && reached_nobody(status)
    }

    /// Makes a call there and nowhere else, once. Whoever chooses among servers learns of it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call.
    pub(in crate::client) async fn exchange(
        &self,
        call: Call<'_>,
        terms: Terms,
    ) -> Result<Option<Reply>, Status> {
        let visit = Visit::begin(self.snapshot.clone(), self.place, now(), call.timeout, (0, 1))
            .ok_or_else(|| Status::internal("a server has its place in the set that it is from"))?;
        let mut attempt = Attempt::new(self.pool(), call, terms.wait_for_ready, self.spares);
        let ended = attempt.exchange().await;
        let failure = failure(&ended);
        visit.end(failure);
        if !attempt.has_left() {
            self.miss(failure);
        }
        ended
    }

    /// No connection took a call: it is seen to in the background.
    #[cold]
    fn miss(&self, failure: Option<&Status>) {
        match failure {
            Some(status) if status.retry() == Retry::Elsewhere && !self.endpoint.is_doubted() => {
                self.endpoint.shun();
            }
            // There was no time to find out more.
            Some(_) => self.endpoint.doubt(),
            None => {}
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

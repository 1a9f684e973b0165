//! Connects in progress that outlive their calls.

use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

use polyrpc_core::{Retry, Scope, Status};
use tokio::task::JoinError;

use crate::client::connection::any_connection::{AnyConnection, Readiness};
use crate::client::connection::connector::Connector;
use crate::contention::{Mutex, MutexGuard};
use crate::runtime::{AbortOnDrop, resume_panic};

/// Pending connects, which outlive the calls that started them, as in brpc and gRPC: otherwise a client whose calls
/// time out before the connection is established would never get one. Connects without a waiting call are kept for the
/// next call, and are aborted when this is dropped.
pub(super) struct PendingConnects {
    state: Mutex<PendingState>,
    /// Maximum number of connects that are kept.
    max_kept: usize,
}

#[derive(Default)]
struct PendingState {
    pending: Vec<PendingConnect>,
    /// Whether no further connects are kept.
    is_closed: bool,
}

/// Pending connect.
pub(super) type PendingConnect = AbortOnDrop<Result<UnusedConnection, Status>>;

impl PendingConnects {
    pub(super) fn new(max_kept: usize) -> Self {
        Self { state: Mutex::default(), max_kept }
    }

    /// Returns a connection without any calls, from a pending connect or a new one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the connect to the next caller.
    pub(super) async fn connect(&self, connector: &Arc<Connector>) -> Result<Arc<dyn AnyConnection>, Status> {
        let pending = loop {
            let Some(pending) = self.take() else { break spawn(connector)? };
            if !pending.is_finished() {
                break pending;
            }
            // A failure that no call waited for is outdated.
            let Ok(Ok(fresh)) = pending.await else { continue };
            let connection = fresh.into_connection();
            if connection.readiness() != Readiness::Ending {
                return Ok(connection);
            }
            connection.close();
        };
        match self.wait(pending).await {
            Ok(connected) => connected.map(UnusedConnection::into_connection),
            Err(error) => {
                resume_panic(error);
                Err(given_up())
            }
        }
    }

    /// Aborts all connects that no call waits for.
    pub(super) fn clear(&self) {
        self.lock().pending.clear();
    }

    /// Aborts them and keeps no further ones.
    pub(super) fn close(&self) {
        *self.lock() = PendingState { pending: Vec::new(), is_closed: true };
    }

    async fn wait(&self, pending: PendingConnect) -> Result<Result<UnusedConnection, Status>, JoinError> {
        ConnectWaiter { connects: self, pending: Some(pending) }.await
    }

    /// Takes a finished connect if there is any, otherwise the oldest one.
    fn take(&self) -> Option<PendingConnect> {
        let pending = &mut self.lock().pending;
        let index = pending.iter().position(PendingConnect::is_finished).unwrap_or_default();
        (index < pending.len()).then(|| pending.remove(index))
    }

    fn put_back(&self, pending: PendingConnect) {
        let mut state = self.lock();
        if !state.is_closed && state.pending.len() < self.max_kept {
            state.pending.push(pending);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Caller that waits for a connection.
struct ConnectWaiter<'c> {
    connects: &'c PendingConnects,
    pending: Option<PendingConnect>,
}

impl Future for ConnectWaiter<'_> {
    type Output = Result<Result<UnusedConnection, Status>, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let pending = self.pending.as_mut().expect("it is polled until it is ready");
        let connected = ready!(Pin::new(pending).poll(cx));
        self.pending = None;
        Poll::Ready(connected)
    }
}

impl Drop for ConnectWaiter<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.connects.put_back(pending);
        }
    }
}

/// Connection without any calls; dropping it closes it.
pub(super) struct UnusedConnection(Option<Arc<dyn AnyConnection>>);

impl UnusedConnection {
    pub(super) fn new(connection: Arc<dyn AnyConnection>) -> Self {
        Self(Some(connection))
    }

    fn into_connection(mut self) -> Arc<dyn AnyConnection> {
        self.0.take().expect("it is taken once")
    }
}

impl Drop for UnusedConnection {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.close();
        }
    }
}

/// Connects in a task, so that several calls can wait for it in turn.
fn spawn(connector: &Arc<Connector>) -> Result<PendingConnect, Status> {
    if let Some(reason) = connector.gate.refusal() {
        return Err(reason);
    }
    let connector = connector.clone();
    Ok(tokio::spawn(async move { connector.connect().await.map(UnusedConnection::new) }).into())
}

#[cold]
fn given_up() -> Status {
    Status::unavailable("the runtime of the connect task has ended")
        .with_scope(Scope::Connection)
        .with_retry(Retry::Elsewhere)
}

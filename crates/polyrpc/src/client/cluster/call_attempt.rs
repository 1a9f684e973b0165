use std::sync::Arc;
use std::time::Instant;
use std::{fmt, mem};

use polyrpc_core::{Call, Reply, Status};

use super::call_connection::CallConnection;
use super::{Channel, RetryLoop, RoutingOptions};
use crate::client::connection::any_connection::Readiness;
use crate::client::connection::call_slot;
use crate::client::pool::Pool;
use crate::client::retryable::{failure, is_connection_failure_before_start};
use crate::client::trace_span;
use crate::propagation::{Phase, phase_ended};
use crate::transport::Address;

/// Call that looks for a connection to take it.
pub(in crate::client) struct CallAttempt<'a> {
    source: ConnectionSource<'a>,
    /// Call to send; the connection takes it out.
    pub(in crate::client) call: Option<Call<'a>>,
    pub(in crate::client) deadline: Option<Instant>,
    /// Copy of the call, kept if a server may report that it did not process the call.
    retained_call: Option<Box<Call<'a>>>,
    wait_for_ready: bool,
    /// Whether a connection has refused the call.
    refused: bool,
}

/// Source of connections.
enum ConnectionSource<'a> {
    Server(&'a Arc<Pool>),
    /// Boxed, so that a client of one server does not pay for its size.
    Channel(Box<RetryLoop<'a>>),
}

impl<'a> CallAttempt<'a> {
    /// Creates a call to one server. `keep`: the server may report that it did not process the call.
    pub(in crate::client) fn new(
        pool: &'a Arc<Pool>,
        call: Call<'a>,
        wait_for_ready: bool,
        keep: bool,
    ) -> Self {
        let deadline = call.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { wait_for_ready, ..Self::with_deadline(pool, call, deadline, keep) }
    }

    /// Creates a call to one server with a known deadline.
    pub(in crate::client) fn with_deadline(
        pool: &'a Arc<Pool>,
        call: Call<'a>,
        deadline: Option<Instant>,
        keep: bool,
    ) -> Self {
        let kept = keep.then(|| Box::new(call.clone()));
        let source = ConnectionSource::Server(pool);
        Self {
            source,
            call: Some(call),
            deadline,
            retained_call: kept,
            wait_for_ready: false,
            refused: false,
        }
    }

    /// Creates a call to any server of a channel.
    pub(in crate::client) fn through_channel(
        channel: &'a Channel,
        call: Call<'a>,
        routing: RoutingOptions,
    ) -> Self {
        let retry_loop = RetryLoop::new(channel, &call, routing);
        let deadline = retry_loop.deadline();
        let source = ConnectionSource::Channel(Box::new(retry_loop));
        Self {
            source,
            call: Some(call),
            deadline,
            retained_call: None,
            wait_for_ready: false,
            refused: false,
        }
    }

    /// Makes the call and waits for its reply.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the call.
    pub(in crate::client) async fn call(&mut self) -> Result<Option<Reply>, Status> {
        loop {
            let connection = self.connect().await?;
            let address = server(&self.source, &connection);
            phase_ended(Phase::Connect(address.map(|address| address as &dyn fmt::Display)));
            // Written twice: passing the future on would copy it.
            let ended = if trace_span::is_enabled() {
                let exchange = call_slot::call(connection.slot(), &mut self.call, self.deadline);
                let server = server(&self.source, &connection).map(ToString::to_string);
                Box::pin(trace_span::attempt(server, exchange)).await
            } else {
                call_slot::call(connection.slot(), &mut self.call, self.deadline).await
            };
            phase_ended(Phase::RoundTrip);
            match failure(&ended) {
                Some(status) if self.should_retry(status, &connection) => trace_span::log_retry(status),
                Some(_) => return ended,
                None => {
                    connection.finish(None);
                    return ended;
                }
            }
        }
    }

    /// Returns a connection for the call, if there is one before the deadline.
    pub(in crate::client) async fn connect(&mut self) -> Result<CallConnection, Status> {
        match self.try_acquire() {
            Some(connection) if !self.refused => Ok(connection),
            Some(connection) => {
                self.set_remaining_timeout();
                Ok(connection)
            }
            None => {
                let connection = self.connect_by_deadline().await?;
                self.set_remaining_timeout();
                Ok(connection)
            }
        }
    }

    /// Whether to retry the call on another connection after this failure.
    #[cold]
    pub(in crate::client) fn should_retry(&mut self, status: &Status, connection: &CallConnection) -> bool {
        if let (ConnectionSource::Channel(retry_loop), Some(guard)) = (&mut self.source, connection.guard()) {
            if self.call.is_some() {
                return retry_loop.retry_unsent(guard);
            }
            guard.finish(Some(status));
            self.call = retry_loop.retry(status, guard);
            return self.call.is_some();
        }
        if self.call.is_some() {
            // If the connection is merely full, another call was faster.
            return connection.slot().readiness() != Readiness::Ending
                || !mem::replace(&mut self.refused, true);
        }
        // The call was not processed in this case.
        if !is_connection_failure_before_start(status) || self.refused {
            return false;
        }
        self.refused = true;
        self.call = self.retained_call.take().map(|call| *call);
        self.call.is_some()
    }

    /// Whether a connection has taken the call.
    pub(in crate::client) fn has_left(&self) -> bool {
        self.call.is_none()
    }

    fn try_acquire(&mut self) -> Option<CallConnection> {
        match &mut self.source {
            ConnectionSource::Server(pool) => pool.try_acquire().map(CallConnection::from),
            ConnectionSource::Channel(retry_loop) => retry_loop.try_acquire(self.call.as_ref()?),
        }
    }

    /// Sets the timeout sent to the server to the remaining time.
    fn set_remaining_timeout(&mut self) {
        if let Some(call) = &mut self.call {
            call.timeout = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        }
    }

    async fn connect_by_deadline(&mut self) -> Result<CallConnection, Status> {
        let pool = match &mut self.source {
            ConnectionSource::Server(pool) => pool,
            ConnectionSource::Channel(retry_loop) => {
                let request = self.call.as_ref().map(|call| call.body.clone()).unwrap_or_default();
                // Boxed for the same reason as the retry loop.
                return Box::pin(retry_loop.acquire(&request)).await;
            }
        };
        let acquired = acquire_when_ready(pool, self.wait_for_ready);
        let Some(deadline) = self.deadline else { return acquired.await };
        tokio::time::timeout_at(deadline.into(), acquired)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("no connection in time")))
    }
}

/// Address of the server of a connection.
fn server<'s>(source: &'s ConnectionSource<'_>, connection: &'s CallConnection) -> Option<&'s Address> {
    let pool = match (source, connection.guard()) {
        (_, Some(guard)) => guard.endpoint().pool(),
        (ConnectionSource::Server(pool), None) => pool,
        (ConnectionSource::Channel(_), None) => return None,
    };
    pool.address()
}

async fn acquire_when_ready(pool: &Arc<Pool>, wait_for_ready: bool) -> Result<CallConnection, Status> {
    loop {
        let failure = match pool.acquire().await {
            Err(failure) if wait_for_ready => failure,
            acquired => return acquired.map(CallConnection::from),
        };
        let Some(next) = pool.next_attempt() else { return Err(failure) };
        tokio::time::sleep_until(next.into()).await;
    }
}

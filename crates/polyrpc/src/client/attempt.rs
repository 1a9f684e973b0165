use std::mem;
use std::sync::Arc;
use std::time::Instant;

use polyrpc_wire::{Call, Retry, Scope, Status};

use super::link::{Link, Standing};
use super::pool::{Lease, Pool};

/// A call that looks for a connection that takes it.
pub(super) struct Attempt<'a> {
    pool: &'a Arc<Pool>,
    /// What the connection takes out.
    pub(super) call: Option<Call<'a>>,
    pub(super) deadline: Option<Instant>,
    /// A copy, where a server may say that it never looked at a call.
    kept: Option<Box<Call<'a>>>,
    wait_for_ready: bool,
    /// A connection has refused it.
    refused: bool,
}

impl<'a> Attempt<'a> {
    /// `keep`: the server may say that it never looked at the call.
    pub(super) fn new(pool: &'a Arc<Pool>, call: Call<'a>, wait_for_ready: bool, keep: bool) -> Self {
        let deadline = call.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let kept = keep.then(|| Box::new(call.clone()));
        Self { pool, call: Some(call), deadline, kept, wait_for_ready, refused: false }
    }

    /// A connection for the call, if there is one in time.
    pub(super) async fn lease(&mut self) -> Result<Lease, Status> {
        match self.pool.ready() {
            Some(lease) if !self.refused => Ok(lease),
            Some(lease) => {
                self.tell_what_is_left();
                Ok(lease)
            }
            None => {
                let lease = self.lease_by_deadline().await?;
                self.tell_what_is_left();
                Ok(lease)
            }
        }
    }

    /// Whether the call, which failed so on this connection, is to be tried on another. It was not begun then.
    #[cold]
    pub(super) fn again(&mut self, status: &Status, link: &Arc<dyn Link>) -> bool {
        if self.call.is_some() {
            // If it is merely full, another call was faster.
            return link.standing() != Standing::Ending || !mem::replace(&mut self.refused, true);
        }
        if status.scope() != Scope::Connection || status.retry() != Retry::Elsewhere || self.refused {
            return false;
        }
        self.refused = true;
        self.call = self.kept.take().map(|call| *call);
        self.call.is_some()
    }

    /// Tells the server what is left of the time.
    fn tell_what_is_left(&mut self) {
        if let Some(call) = &mut self.call {
            call.timeout = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        }
    }

    async fn lease_by_deadline(&self) -> Result<Lease, Status> {
        let Some(deadline) = self.deadline else { return self.lease_at_last().await };
        tokio::time::timeout_at(deadline.into(), self.lease_at_last())
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("no connection in time")))
    }

    async fn lease_at_last(&self) -> Result<Lease, Status> {
        loop {
            let failure = match self.pool.lease().await {
                Err(failure) if self.wait_for_ready => failure,
                leased => return leased,
            };
            let Some(next) = self.pool.next_attempt() else { return Err(failure) };
            tokio::time::sleep_until(next.into()).await;
        }
    }
}

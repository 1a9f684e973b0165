use std::mem;
use std::sync::Arc;
use std::time::Instant;

use polyrpc_core::{Call, Reply, Status};

use super::lease::Lease;
use super::{Channel, Course, Terms};
use crate::client::connection::link::{self, Standing};
use crate::client::failure::{failure, reached_nobody};
use crate::client::pool::Pool;
use crate::client::traced;

/// A call that looks for a connection that takes it.
pub(in crate::client) struct Attempt<'a> {
    way: Way<'a>,
    /// What the connection takes out.
    pub(in crate::client) call: Option<Call<'a>>,
    pub(in crate::client) deadline: Option<Instant>,
    /// A copy, where a server may say that it never looked at a call.
    kept: Option<Box<Call<'a>>>,
    wait_for_ready: bool,
    /// A connection has refused it.
    refused: bool,
}

/// Where connections come from.
enum Way<'a> {
    Server(&'a Arc<Pool>),
    /// Boxed, so that a client of one server does not pay for its size.
    Channel(Box<Course<'a>>),
}

impl<'a> Attempt<'a> {
    /// A call to one server. `keep`: it may say that it never looked at the call.
    pub(in crate::client) fn new(
        pool: &'a Arc<Pool>,
        call: Call<'a>,
        wait_for_ready: bool,
        keep: bool,
    ) -> Self {
        let deadline = call.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { wait_for_ready, ..Self::by(pool, call, deadline, keep) }
    }

    /// The same for a call whose deadline is known.
    pub(in crate::client) fn by(
        pool: &'a Arc<Pool>,
        call: Call<'a>,
        deadline: Option<Instant>,
        keep: bool,
    ) -> Self {
        let kept = keep.then(|| Box::new(call.clone()));
        let way = Way::Server(pool);
        Self { way, call: Some(call), deadline, kept, wait_for_ready: false, refused: false }
    }

    /// A call to any server of a channel.
    pub(in crate::client) fn through(channel: &'a Channel, call: Call<'a>, terms: Terms) -> Self {
        let course = Course::new(channel, &call, terms);
        let deadline = course.deadline();
        let way = Way::Channel(Box::new(course));
        Self { way, call: Some(call), deadline, kept: None, wait_for_ready: false, refused: false }
    }

    /// Makes the call, and waits for its reply.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the call.
    pub(in crate::client) async fn exchange(&mut self) -> Result<Option<Reply>, Status> {
        loop {
            let lease = self.lease().await?;
            // Written twice: to hand the future on would copy it.
            let ended = if traced::is_wanted() {
                let exchange = link::exchange(lease.link(), &mut self.call, self.deadline);
                Box::pin(traced::attempt(server(&self.way, &lease), exchange)).await
            } else {
                link::exchange(lease.link(), &mut self.call, self.deadline).await
            };
            match failure(&ended) {
                Some(status) if self.again(status, &lease) => traced::repeated(status),
                Some(_) => return ended,
                None => {
                    lease.end(None);
                    return ended;
                }
            }
        }
    }

    /// A connection for the call, if there is one in time.
    pub(in crate::client) async fn lease(&mut self) -> Result<Lease, Status> {
        match self.ready() {
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

    /// Whether the call, which failed so on this connection, is to be tried on another.
    #[cold]
    pub(in crate::client) fn again(&mut self, status: &Status, lease: &Lease) -> bool {
        if let (Way::Channel(course), Some(visit)) = (&mut self.way, lease.visit()) {
            if self.call.is_some() {
                return course.refused(visit);
            }
            visit.end(Some(status));
            self.call = course.again(status, visit);
            return self.call.is_some();
        }
        if self.call.is_some() {
            // If it is merely full, another call was faster.
            return lease.link().standing() != Standing::Ending || !mem::replace(&mut self.refused, true);
        }
        // It was not begun then.
        if !reached_nobody(status) || self.refused {
            return false;
        }
        self.refused = true;
        self.call = self.kept.take().map(|call| *call);
        self.call.is_some()
    }

    /// Whether a connection has taken the call.
    pub(in crate::client) fn has_left(&self) -> bool {
        self.call.is_none()
    }

    fn ready(&mut self) -> Option<Lease> {
        match &mut self.way {
            Way::Server(pool) => pool.ready().map(Lease::from),
            Way::Channel(course) => course.ready(self.call.as_ref()?),
        }
    }

    /// Tells the server what is left of the time.
    fn tell_what_is_left(&mut self) {
        if let Some(call) = &mut self.call {
            call.timeout = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        }
    }

    async fn lease_by_deadline(&mut self) -> Result<Lease, Status> {
        let pool = match &mut self.way {
            Way::Server(pool) => pool,
            Way::Channel(course) => {
                let request = self.call.as_ref().map(|call| call.body.clone()).unwrap_or_default();
                // Boxed for the same reason as the course.
                return Box::pin(course.lease(&request)).await;
            }
        };
        let leasing = lease_at_last(pool, self.wait_for_ready);
        let Some(deadline) = self.deadline else { return leasing.await };
        tokio::time::timeout_at(deadline.into(), leasing)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("no connection in time")))
    }
}

/// Where a connection leads.
#[cold]
fn server(way: &Way<'_>, lease: &Lease) -> Option<String> {
    let pool = match (way, lease.visit()) {
        (_, Some(visit)) => visit.endpoint().pool(),
        (Way::Server(pool), None) => pool,
        (Way::Channel(_), None) => return None,
    };
    pool.address().map(ToString::to_string)
}

async fn lease_at_last(pool: &Arc<Pool>, wait_for_ready: bool) -> Result<Lease, Status> {
    loop {
        let failure = match pool.lease().await {
            Err(failure) if wait_for_ready => failure,
            leased => return leased.map(Lease::from),
        };
        let Some(next) = pool.next_attempt() else { return Err(failure) };
        tokio::time::sleep_until(next.into()).await;
    }
}

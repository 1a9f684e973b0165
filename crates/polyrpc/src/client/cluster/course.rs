use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_core::{Call, Retry, Scope, Status};
use tokio::time::{sleep, timeout_at};

use super::backoff::pause;
use super::endpoint::Endpoint;
use super::lease::Lease;
use super::mode::FailMode;
use super::recovery::Crisis;
use super::snapshot::Snapshot;
use super::visit::Visit;
use super::{Channel, now};
use crate::client::balance::Asked;
use crate::client::connection::backoff::chance;
use crate::client::failure::{is_repeatable, reached_nobody};
use crate::client::pool::PooledConnection;

/// What a call says that matters to where it goes.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::client) struct Terms {
    pub(in crate::client) idempotent: bool,
    pub(in crate::client) key: Option<u64>,
    pub(in crate::client) wait_for_ready: bool,
}

/// The way of one call through the servers of a channel: which is asked next, if any.
pub(in crate::client) struct Course<'c> {
    channel: &'c Channel,
    service: &'c str,
    method: &'c str,
    terms: Terms,
    began: Instant,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    /// The call, to be sent again.
    kept: Option<Call<'c>>,
    /// How many attempts the call has had and may have yet.
    had: u32,
    left: u32,
    /// How many servers were not even reached, which is not held against the call.
    missed: usize,
    tried: Vec<Arc<Endpoint>>,
    /// A server was chosen, and there is no connection to it yet.
    chosen: Option<Chosen>,
    /// Why the last attempt failed.
    failure: Option<Status>,
}

/// A server that was chosen for the next attempt.
pub(super) struct Chosen {
    pub(super) visit: Box<Visit>,
    /// It is thought to be well, and the call was not there yet. A server that is chosen for want of a better one is
    /// not.
    hopeful: bool,
}

impl<'c> Course<'c> {
    pub(in crate::client) fn new(channel: &'c Channel, call: &Call<'c>, terms: Terms) -> Self {
        let settings = &channel.shared.settings;
        channel.shared.purse.earn();
        let began = now();
        Self {
            channel,
            service: call.service,
            method: call.method,
            terms,
            began,
            timeout: call.timeout,
            deadline: call.timeout.and_then(|timeout| began.checked_add(timeout)),
            kept: None,
            had: 0,
            left: if settings.fail_mode == FailMode::Failfast { 0 } else { settings.retries },
            missed: 0,
            tried: Vec::new(),
            chosen: None,
            failure: None,
        }
    }

    /// Until when the call waits.
    pub(in crate::client) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// A connection to the first server that is chosen, if there is one already.
    pub(in crate::client) fn ready(&mut self, call: &Call<'c>) -> Option<Lease> {
        if self.had > 0 || self.missed > 0 {
            return None;
        }
        if self.left > 0 || self.channel.shared.settings.spares {
            self.kept = Some(call.clone());
        }
        if self.crisis().is_some() {
            return None;
        }
        let chosen = self.choose(self.channel.snapshot()?, &call.body, self.began)?;
        match chosen.visit.endpoint().pool().ready() {
            Some(connection) => {
                self.had = 1;
                Some(Lease::of(connection, chosen.visit))
            }
            None => {
                self.chosen = Some(chosen);
                None
            }
        }
    }

    /// A connection to the next server, made if need be; servers that cannot be reached are passed over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the attempt up.
    pub(in crate::client) async fn lease(&mut self, request: &[u8]) -> Result<Lease, Status> {
        loop {
            let chosen = match self.chosen.take() {
                Some(chosen) => chosen,
                None => self.next(request).await?,
            };
            match self.connect(&chosen).await {
                Ok(connection) => {
                    self.had = self.had.saturating_add(1);
                    return Ok(Lease::of(connection, chosen.visit));
                }
                Err(status) => self.pass_over(chosen, status)?,
            }
        }
    }

    /// Whether the call, which failed so on this server, is to be sent again; then here it is.
    #[cold]
    pub(in crate::client) fn again(&mut self, status: &Status, visit: &Visit) -> Option<Call<'c>> {
        let call = self.kept.clone()?;
        (self.may_try_again(status, visit) || self.is_spared(status, visit)).then_some(call)
    }

    /// Whether the call, which this server did not take from its connection, is to look for another.
    #[cold]
    pub(in crate::client) fn refused(&mut self, visit: &Visit) -> bool {
        self.had = self.had.saturating_sub(1);
        self.missed += 1;
        // The connection had just ended. That server may well be there and get another, so it counts as tried in
        // vain only if that goes on.
        if self.missed > 1 {
            self.note(visit);
        }
        self.missed <= visit.servers()
    }

    /// Whether there is to be another attempt after this server failed so. It is paid for then.
    pub(super) fn may_try_again(&mut self, status: &Status, visit: &Visit) -> bool {
        if !is_repeatable(status, self.terms.idempotent) || self.left == 0 || self.is_over() || !self.pay() {
            return false;
        }
        self.left -= 1;
        self.note(visit);
        self.failure = Some(status.clone());
        true
    }

    /// Whether the server never looked at the call, because it ends the connection: a client of one server finds
    /// another connection then, once, and so does one of several whatever its mode.
    fn is_spared(&mut self, status: &Status, visit: &Visit) -> bool {
        let is_spared =
            self.channel.shared.settings.spares && self.had == 1 && reached_nobody(status) && !self.is_over();
        if is_spared {
            self.note(visit);
        }
        is_spared
    }

    /// The next server, when it may be asked.
    pub(super) async fn next(&mut self, request: &[u8]) -> Result<Chosen, Status> {
        let deadline = self.deadline.map(Into::into);
        loop {
            let snapshot = match self.channel.snapshot().filter(|snapshot| !snapshot.is_empty()) {
                Some(snapshot) => snapshot,
                None => match self.channel.servers(deadline, self.terms.wait_for_ready).await {
                    Ok(snapshot) => snapshot,
                    // Why a server failed says more than that there is none any more.
                    Err(status) => return Err(self.failure.take().unwrap_or(status)),
                },
            };
            self.admit(&snapshot)?;
            let chosen = match self.fails_on_the_same() {
                Some(endpoint) => self.revisit(snapshot, &endpoint, request).await?,
                None => {
                    let connected = self.connected(&snapshot, request);
                    match connected.or_else(|| self.choose(snapshot.clone(), request, now())) {
                        Some(chosen) => Some(chosen),
                        None => self.choose_again(snapshot, request).await?,
                    }
                }
            };
            if let Some(chosen) = chosen {
                return Ok(chosen);
            }
        }
    }

    /// A server for a second attempt beside the first, if there is one that was not tried, and it is paid for.
    pub(super) fn beside(&mut self, request: &[u8]) -> Option<Chosen> {
        if self.left == 0 || self.crisis().is_some() {
            return None;
        }
        let chosen = self.choose(self.channel.snapshot()?, request, now())?;
        if !self.pay() {
            return None;
        }
        self.left -= 1;
        Some(chosen)
    }

    /// Whether the budget bears one more attempt.
    fn pay(&self) -> bool {
        let snapshot = || self.channel.shared.current.load();
        self.channel.shared.purse.pay(|| snapshot().as_ref().map_or(0, |snapshot| snapshot.in_flight()))
    }

    /// Sets out for a server: it counts as tried as long as the call is under way there.
    pub(super) fn depart(&mut self, visit: &Visit) {
        self.had = self.had.saturating_add(1);
        self.note(visit);
    }

    /// Whether the servers are recovering.
    fn crisis(&self) -> Option<&'c Crisis> {
        self.channel.shared.crisis.as_ref().filter(|crisis| crisis.is_on())
    }

    /// Whether the call may go to these servers.
    fn admit(&self, snapshot: &Snapshot) -> Result<(), Status> {
        let Some(crisis) = self.crisis() else { return Ok(()) };
        let now = now();
        crisis.admit(now, chance(), || snapshot.well(now))
    }

    /// A server that is thought to be well and was not tried.
    fn choose(&self, snapshot: Arc<Snapshot>, request: &[u8], now: Instant) -> Option<Chosen> {
        let tried = self.tried_of(&snapshot);
        let place = snapshot.pick(&self.asked(&snapshot, &tried, request, now))?;
        // A balancer of the user's own may not care.
        let hopeful = !tried.contains(&place);
        self.visit(snapshot, place, now, hopeful)
    }

    /// A server to which there is a connection, for a call that was to several in vain: where a registry lists many that
    /// are not there, the balancer would send it to one after another until its time is over.
    fn connected(&self, snapshot: &Arc<Snapshot>, request: &[u8]) -> Option<Chosen> {
        if self.missed < IN_VAIN {
            return None;
        }
        let now = now();
        // What says no to most comes first: there may be thousands.
        let connection = |place: usize| {
            let (endpoint, candidate) = (snapshot.endpoint(place)?, snapshot.candidates().get(place)?);
            candidate.load().is_available(now).then(|| endpoint.pool().ready()).flatten()
        };
        let tried = self.tried_of(snapshot);
        let asked = self.asked(snapshot, &tried, request, now);
        let place = snapshot.pick_among(&asked, |place| connection(place).is_some())?;
        self.visit(snapshot.clone(), place, now, true)
    }

    /// A server although all were tried, or none is thought to be well: after a pause, since whatever failed may need
    /// it.
    async fn choose_again(
        &mut self,
        snapshot: Arc<Snapshot>,
        request: &[u8],
    ) -> Result<Option<Chosen>, Status> {
        let place = self.choose_anew(&snapshot, request);
        self.tried.clear();
        let Some(endpoint) = place.and_then(|place| snapshot.endpoint(place)) else {
            self.find_none().await?;
            return Ok(None);
        };
        self.rest(endpoint).await?;
        Ok(place.and_then(|place| self.visit(snapshot, place, now(), false)))
    }

    /// The place of a server that is thought to be well whether it was tried or not; if none is, of one that is not, the
    /// others before those that were tried. `None` if the balancer gives the call to none of them.
    fn choose_anew(&self, snapshot: &Snapshot, request: &[u8]) -> Option<usize> {
        let now = now();
        let asked = self.asked(snapshot, &[], request, now);
        if let Some(place) = snapshot.pick(&asked) {
            return Some(place);
        }
        if let Some(crisis) = self.channel.shared.crisis.as_ref().filter(|_| snapshot.well(now) == 0) {
            crisis.begin();
        }
        let tried = self.tried_of(snapshot);
        let untried = snapshot.pick_among(&Asked { tried: &tried, ..asked }, |_| true);
        untried.or_else(|| snapshot.pick_among(&asked, |_| true))
    }

    /// The balancer has no server for the call. One that waits may see others come.
    #[cold]
    async fn find_none(&mut self) -> Result<(), Status> {
        if !self.terms.wait_for_ready {
            return Err(self.failure.take().unwrap_or_else(no_choice));
        }
        self.missed += 1;
        self.pause(pause(&self.channel.shared.settings.backoff, self.attempts())).await
    }

    /// The server that was tried already, after a pause.
    async fn revisit(
        &mut self,
        snapshot: Arc<Snapshot>,
        endpoint: &Arc<Endpoint>,
        request: &[u8],
    ) -> Result<Option<Chosen>, Status> {
        let Some(place) = snapshot.place(endpoint) else {
            // It has left: whoever takes its place.
            self.tried.clear();
            return Ok(self.choose(snapshot, request, now()));
        };
        self.rest(endpoint).await?;
        Ok(self.visit(snapshot, place, now(), false))
    }

    /// The server to which the call is bound, once it was tried.
    fn fails_on_the_same(&self) -> Option<Arc<Endpoint>> {
        let is_bound = self.channel.shared.settings.fail_mode == FailMode::Failtry;
        self.tried.last().filter(|_| is_bound).cloned()
    }

    /// Waits before a server is tried again: at least until connections to it are, unless that takes too long for a
    /// call that does not want to wait.
    async fn rest(&mut self, endpoint: &Endpoint) -> Result<(), Status> {
        let attempts = self.attempts();
        if attempts == 0 {
            return Ok(());
        }
        let now = now();
        let usual = pause(&self.channel.shared.settings.backoff, attempts);
        let reachable = endpoint.next_attempt().saturating_duration_since(now);
        let pause = match reachable <= PATIENCE || self.terms.wait_for_ready {
            true => usual.max(reachable),
            false => usual,
        };
        self.pause(pause).await
    }

    async fn pause(&mut self, pause: Duration) -> Result<(), Status> {
        let is_in_time = |deadline| now().checked_add(pause).is_some_and(|then| then < deadline);
        if !self.deadline.is_none_or(is_in_time) {
            return Err(self.failure.take().unwrap_or_else(too_late));
        }
        sleep(pause).await;
        Ok(())
    }

    /// How often it was tried, in vain or not.
    fn attempts(&self) -> u32 {
        self.had.saturating_add(u32::try_from(self.missed).unwrap_or(u32::MAX))
    }

    /// The places of those that were tried.
    fn tried_of(&self, snapshot: &Snapshot) -> Vec<usize> {
        self.tried.iter().filter_map(|endpoint| snapshot.place(endpoint)).collect()
    }

    fn visit(&self, snapshot: Arc<Snapshot>, place: usize, now: Instant, hopeful: bool) -> Option<Chosen> {
        let visit = Visit::begin(snapshot, place, now, self.timeout, (self.left, self.had))?;
        Some(Chosen { visit, hopeful })
    }

    fn asked<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        tried: &'a [usize],
        request: &'a [u8],
        now: Instant,
    ) -> Asked<'a> {
        Asked {
            service: self.service,
            method: self.method,
            key: self.terms.key,
            request,
            now,
            candidates: snapshot.candidates(),
            tried,
        }
    }

    /// A connection to the server that was chosen.
    async fn connect(&self, chosen: &Chosen) -> Result<PooledConnection, Status> {
        let pool = chosen.visit.endpoint().pool();
        if let Some(connection) = pool.ready() {
            return Ok(connection);
        }
        let Some(deadline) = self.deadline else { return pool.lease().await };
        let now = now();
        let left = deadline.saturating_duration_since(now);
        // A server that does not even answer is left in time for another to answer.
        let patience = if chosen.hopeful && self.left > 0 { left / 2 } else { left };
        match timeout_at((now + patience).into(), pool.lease()).await {
            Ok(leased) => leased,
            Err(_) => {
                // The call has given up; whether the server is to blame is seen in the background.
                chosen.visit.endpoint().doubt();
                Err(if patience < left { too_slow() } else { too_late() })
            }
        }
    }

    /// Goes on behind a server that could not be reached, unless the call ends with that.
    fn pass_over(&mut self, chosen: Chosen, status: Status) -> Result<(), Status> {
        self.miss(&chosen.visit, &status);
        self.may_pass_over(&chosen, status)
    }

    /// A server could not be reached.
    pub(super) fn miss(&mut self, visit: &Visit, status: &Status) {
        visit.end(Some(status));
        if status.retry() != Retry::Elsewhere {
            return;
        }
        if !visit.endpoint().is_doubted() {
            visit.endpoint().shun();
        }
        self.missed += 1;
        self.note(visit);
    }

    /// Whether there is to be another attempt behind a server that was missed so.
    pub(super) fn may_pass_over(&mut self, missed: &Chosen, status: Status) -> Result<(), Status> {
        if status.retry() != Retry::Elsewhere {
            return Err(status);
        }
        // Each of them once.
        let is_free = missed.hopeful && self.missed <= missed.visit.servers();
        let settings = &self.channel.shared.settings;
        if settings.fail_mode == FailMode::Failfast && !self.terms.wait_for_ready || self.is_over() {
            return Err(status);
        }
        if !is_free && !self.terms.wait_for_ready {
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => return Err(status),
            }
        }
        self.failure = Some(status);
        Ok(())
    }

    /// The server counts as tried. Of many only the last are remembered, as by brpc (`excluded_servers.h`).
    fn note(&mut self, visit: &Visit) {
        if self.tried.len() >= REMEMBERED {
            self.tried.remove(0);
        }
        self.tried.push(visit.endpoint().clone());
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now())
    }
}

/// After how many servers that could not be reached a call goes where there is a connection. Before, it is the
/// balancer's to say who is next.
const IN_VAIN: usize = 2;

/// How many servers are remembered as tried.
const REMEMBERED: usize = 8;

/// How long a call that may try again waits for a server to which connections are not to be made yet.
const PATIENCE: Duration = Duration::from_secs(1);

#[cold]
fn too_late() -> Status {
    Status::deadline_exceeded("no connection in time")
}

#[cold]
fn no_choice() -> Status {
    Status::unavailable("the balancer has no server for it")
        .with_scope(Scope::Connection)
        .with_retry(Retry::Elsewhere)
}

#[cold]
fn too_slow() -> Status {
    Status::unavailable("no connection in half the time there was")
}

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use polyrpc_core::{Retry, Scope, Status};

use super::Combo;
use crate::Client;
use crate::call::{OutgoingCall, Response};
use crate::client::balance::{AttemptOutcome, Candidate, LoadBalancer, PickContext, Picker, RoundRobin};
use crate::client::call_defaults::{CallDefaults, deadline};
use crate::client::cluster::RetryTokens;
use crate::client::failure::{is_retryable, is_unprocessed};
use crate::client::{EndpointInfo, Result, RetryBudget};
use crate::codec::Body;
use crate::discovery::{Attributes, Instance};

/// Asks one of several clients, and another if that fails: brpc's `SelectiveChannel`.
///
/// The clients may be of one server or of many, or combinations themselves; they come and go while calls are under way,
/// which end where they began. Clones share them.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::combo::Selective;
///
/// # fn main() -> polyrpc::Result<()> {
/// let east = Client::new("baidu-std+list://10.0.0.1:8000,10.0.0.2:8000")?;
/// let west = Client::new("baidu-std+list://10.1.0.1:8000,10.1.0.2:8000")?;
/// let selective = Selective::builder().sub("east", east).sub("west", west).build()?;
/// let client = selective.client();
/// selective.remove("west");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Selective {
    inner: Arc<Inner>,
    defaults: Arc<CallDefaults>,
}

impl Selective {
    /// A combination to be, of no clients yet.
    pub fn builder() -> SelectiveBuilder {
        SelectiveBuilder::new()
    }

    /// The client whose calls it makes. What was added and removed, before or after, holds for it.
    pub fn client(&self) -> Client {
        Client::of(Choice(self.inner.clone()), (*self.defaults).clone())
    }

    /// Adds a client under a name, in place of the one that had it.
    pub fn add(&self, name: impl Into<String>, client: Client) {
        self.add_with(name, client, Attributes::default());
    }

    /// Adds a client of which is said, to the balancer, what registries say of servers: its weight, where it stands.
    pub fn add_with(&self, name: impl Into<String>, client: Client, attributes: Attributes) {
        let sub = SelectableClient::new(name.into(), client, attributes);
        self.inner.change(|subs| put(subs, sub));
    }

    /// Takes out the client of this name. Returns whether there was one. A call that finds none fails as unavailable.
    pub fn remove(&self, name: &str) -> bool {
        let mut was_there = false;
        self.inner.change(|subs| {
            let before = subs.len();
            subs.retain(|sub| sub.name() != name);
            was_there = subs.len() < before;
        });
        was_there
    }

    /// The names of the clients there are, in the order in which they came.
    pub fn names(&self) -> Vec<String> {
        self.inner.current.load().subs.iter().map(|sub| sub.name().to_owned()).collect()
    }

    /// One of no clients yet.
    pub(super) fn empty(balance: impl LoadBalancer, defaults: Arc<CallDefaults>) -> Self {
        Self::new(SelectiveBuilder::new().balance(balance), defaults)
    }

    fn new(builder: SelectiveBuilder, defaults: Arc<CallDefaults>) -> Self {
        let SelectiveBuilder { subs, balance, retries, budget, .. } = builder;
        let current = ArcSwap::from_pointee(Choices::new(subs, &*balance));
        let inner = Inner {
            current,
            changing: Mutex::default(),
            balance,
            retries,
            retry_tokens: RetryTokens::new(&budget),
        };
        Self { inner: Arc::new(inner), defaults }
    }

    /// Puts these clients in place of those there are.
    pub(super) fn replace(&self, subs: Vec<SelectableClient>) {
        self.inner.change(|known| *known = subs);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inner.current.load().subs.is_empty()
    }

    /// Makes a call.
    pub(super) async fn call(&self, call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        self.inner.call(call).await
    }

    pub(super) fn endpoints(&self) -> Vec<EndpointInfo> {
        self.inner.endpoints()
    }
}

fn put(subs: &mut Vec<SelectableClient>, sub: SelectableClient) {
    match subs.iter_mut().find(|known| known.name() == sub.name()) {
        Some(known) => *known = sub,
        None => subs.push(sub),
    }
}

/// Builder for a [`Selective`].
#[derive(Debug)]
#[must_use]
pub struct SelectiveBuilder {
    subs: Vec<SelectableClient>,
    balance: Box<dyn LoadBalancer>,
    retries: usize,
    budget: RetryBudget,
    timeout: Option<Option<Duration>>,
}

impl SelectiveBuilder {
    fn new() -> Self {
        Self {
            subs: Vec::new(),
            balance: Box::new(RoundRobin::new()),
            retries: RETRIES,
            budget: RetryBudget::default(),
            timeout: None,
        }
    }

    /// Adds a client under a name, in place of the one that had it.
    pub fn sub(self, name: impl Into<String>, client: Client) -> Self {
        self.sub_with(name, client, Attributes::default())
    }

    /// Adds a client as [`Selective::add_with`] does.
    pub fn sub_with(mut self, name: impl Into<String>, client: Client, attributes: Attributes) -> Self {
        put(&mut self.subs, SelectableClient::new(name.into(), client, attributes));
        self
    }

    /// How a client is chosen for a call; to the balancer it is an instance with its name as the address. Default:
    /// each in its turn.
    pub fn balance(mut self, balance: impl LoadBalancer) -> Self {
        self.balance = Box::new(balance);
        self
    }

    /// How many more clients are asked when one fails, each of them once, if its failure says that the call may be sent
    /// again ([`Retry`]). What the clients try again by themselves is within. Default: 3.
    pub fn retries(mut self, retries: usize) -> Self {
        self.retries = retries;
        self
    }

    /// How many calls may be sent on to another client, of all calls together; those that reached no server cost
    /// nothing. What the clients try again by themselves is paid for by them.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.budget = budget;
        self
    }

    /// How long a call waits that does not say itself, on all clients together. Default: as long as the first client's.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = Some(timeout.into());
        self
    }

    /// Makes the combination.
    ///
    /// # Errors
    ///
    /// When it has no clients. Later all may be removed.
    pub fn build(self) -> Result<Selective> {
        let Some(first) = self.subs.first() else {
            return Err(Status::invalid_argument("a selective client needs clients").into());
        };
        let mut defaults = (*first.client.defaults).clone();
        defaults.timeout = self.timeout.unwrap_or(defaults.timeout);
        Ok(Selective::new(self, defaults.into()))
    }
}

/// brpc `channel.cpp`, `max_retry`.
const RETRIES: usize = 3;

/// A client that may be chosen.
#[derive(Debug, Clone)]
pub(super) struct SelectableClient {
    client: Client,
    candidate: Candidate,
}

impl SelectableClient {
    pub(super) fn new(name: String, client: Client, attributes: Attributes) -> Self {
        Self { client, candidate: Candidate::new(Instance::tcp(name).with(attributes)) }
    }

    /// The same, of which other things are said now.
    pub(super) fn renewed(&self, attributes: Attributes) -> Self {
        Self { client: self.client.clone(), candidate: self.candidate.renewed(attributes) }
    }

    pub(super) fn name(&self) -> &str {
        &self.candidate.instance().address
    }
}

/// What calls and those who change the clients have in common.
#[derive(Debug)]
struct Inner {
    current: ArcSwap<Choices>,
    /// Held by whoever changes the clients.
    changing: Mutex<()>,
    balance: Box<dyn LoadBalancer>,
    retries: usize,
    retry_tokens: RetryTokens,
}

impl Inner {
    fn change(&self, change: impl FnOnce(&mut Vec<SelectableClient>)) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut subs = self.current.load().subs.clone();
        change(&mut subs);
        self.current.store(Arc::new(Choices::new(subs, &*self.balance)));
    }

    async fn call(&self, mut call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        let deadline = deadline(call.options.timeout)?.map(|deadline| deadline.into_std());
        let (mut tried, mut failure) = (Vec::new(), None);
        self.purse.deposit();
        loop {
            let choices = self.current.load_full();
            let began = now();
            call.options.timeout = deadline.map(|deadline| deadline.saturating_duration_since(began));
            let attempts = (self.retries.saturating_sub(tried.len()), tried.len() + 1);
            let place = choices.choose(&call, &tried, began);
            let visit = place
                .and_then(|place| ChoiceGuard::start(&choices, place, began, call.options.timeout, attempts));
            // Why a client failed says more than that there is none left.
            let Some(mut visit) = visit else { return Err(failure.unwrap_or_else(no_client)) };
            let status = match visit.sub.client.call_outgoing(call.clone()).await {
                Ok(response) => {
                    visit.finish(None);
                    return Ok(response);
                }
                Err(status) => status,
            };
            visit.finish(Some(&status));
            tried.push(visit.sub.candidate.clone());
            let is_over = deadline.is_some_and(|deadline| deadline <= now());
            if is_over || tried.len() > self.retries || !self.may_try_again(&status, call.options.idempotent)
            {
                return Err(status);
            }
            failure = Some(status);
        }
    }

    /// Whether another client may be asked after this failure. It is paid for then.
    fn may_try_again(&self, status: &Status, idempotent: bool) -> bool {
        is_retryable(status, idempotent)
            && (is_unprocessed(status) || self.purse.withdraw(|| self.in_flight()))
    }

    /// How many attempts are under way.
    fn in_flight(&self) -> usize {
        self.current.load().candidates.iter().map(|candidate| candidate.load().in_flight()).sum()
    }

    fn endpoints(&self) -> Vec<EndpointInfo> {
        self.current.load().subs.iter().flat_map(|sub| sub.client.endpoints()).collect()
    }
}

#[cold]
fn no_client() -> Status {
    Status::unavailable("there is no client left to choose")
        .with_scope(Scope::Connection)
        .with_retry(Retry::Elsewhere)
}

/// The clients at one time.
struct Choices {
    subs: Vec<SelectableClient>,
    candidates: Vec<Candidate>,
    pick: Box<dyn Picker>,
}

impl Choices {
    fn new(subs: Vec<SelectableClient>, balance: &dyn LoadBalancer) -> Self {
        let candidates: Vec<_> = subs.iter().map(|sub| sub.candidate.clone()).collect();
        let pick = balance.picker(&candidates);
        Self { subs, candidates, pick }
    }

    /// A client that was not tried; one that is thought to be down only if there is no other.
    fn choose(&self, call: &OutgoingCall<'_>, tried: &[Candidate], now: Instant) -> Option<usize> {
        let is_tried = |place: &usize| self.candidates.get(*place).is_some_and(|one| was_tried(one, tried));
        let tried: Vec<_> = (0..self.subs.len()).filter(is_tried).collect();
        let asked = PickContext {
            service: call.service,
            method: call.method,
            key: call.options.key,
            request: &call.body.bytes,
            now,
            candidates: &self.candidates,
            tried: &tried,
        };
        let is_new = |place: &usize| *place < self.subs.len() && !tried.contains(place);
        self.pick.pick(&asked).filter(is_new).or_else(|| (0..self.subs.len()).find(is_new))
    }
}

fn was_tried(one: &Candidate, tried: &[Candidate]) -> bool {
    tried.iter().any(|known| known.is(one))
}

impl fmt::Debug for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.subs).finish()
    }
}

/// An attempt by a client, from the choice to its end. One that is dropped before it has ended was given up.
struct ChoiceGuard<'a> {
    choices: &'a Choices,
    place: usize,
    sub: &'a SelectableClient,
    began: Instant,
    timeout: Option<Duration>,
    attempts: (usize, usize),
    ended: bool,
}

impl<'a> ChoiceGuard<'a> {
    fn start(
        choices: &'a Choices,
        place: usize,
        began: Instant,
        timeout: Option<Duration>,
        attempts: (usize, usize),
    ) -> Option<Self> {
        let sub = choices.subs.get(place)?;
        sub.candidate.load().record_start();
        choices.pick.call_started(place, began);
        Some(Self { choices, place, sub, began, timeout, attempts, ended: false })
    }

    fn finish(&mut self, failure: Option<&Status>) {
        self.ended = true;
        let now = now();
        let attempts = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let outcome = AttemptOutcome {
            latency: now.saturating_duration_since(self.began),
            now,
            failure,
            timeout: self.timeout,
            attempts: (attempts(self.attempts.0), attempts(self.attempts.1)),
        };
        self.choices.pick.call_finished(self.place, &outcome);
        if failure.is_some_and(is_unprocessed) {
            self.sub.candidate.load().mark_unavailable_until(now + PAUSE);
        }
    }
}

impl Drop for ChoiceGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(Some(&Status::cancelled("the attempt was given up")));
        }
        self.sub.candidate.load().record_end();
    }
}

/// How long a client that could reach nobody gets no calls: brpc's `channel_check_interval`.
const PAUSE: Duration = Duration::from_secs(1);

/// The time by the clock that timers go by, which a test may have stopped.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The client's end of it.
#[derive(Debug)]
struct Choice(Arc<Inner>);

impl Combo for Choice {
    fn call<'a>(&'a self, call: OutgoingCall<'a>) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(self.0.call(call))
    }

    fn endpoints(&self) -> Vec<EndpointInfo> {
        self.0.endpoints()
    }
}

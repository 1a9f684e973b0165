use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use polyrpc_core::{Retry, Scope, Status};

use super::Combo;
use crate::Client;
use crate::call::{OutgoingCall, Response};
use crate::client::balance::{
    AttemptCounts, AttemptOutcome, Candidate, Load, LoadBalancer, PickContext, Picker, RoundRobin,
};
use crate::client::call_defaults::{CallDefaults, deadline};
use crate::client::cluster::RetryTokens;
use crate::client::retryable::{is_connection_failure_before_start, is_retryable};
use crate::client::{EndpointInfo, Result, RetryBudget};
use crate::codec::Body;
use crate::discovery::{Attributes, Instance};
use crate::runtime::now;

/// Client that calls one of several clients, and another one if that fails: brpc's `SelectiveChannel`.
///
/// The inner clients may have one server or many, or be combinations themselves. They can be added and removed while
/// calls are in flight; such calls finish on the client that they started on. Clones share the inner clients.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::combo::Selective;
///
/// # fn main() -> polyrpc::Result<()> {
/// let east = Client::new("baidu-std+list://10.0.0.1:8000,10.0.0.2:8000")?;
/// let west = Client::new("baidu-std+list://10.1.0.1:8000,10.1.0.2:8000")?;
/// let selective = Selective::builder().sub_channel("east", east).sub_channel("west", west).build()?;
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
    /// Returns a builder without any clients.
    pub fn builder() -> SelectiveBuilder {
        SelectiveBuilder::new()
    }

    /// Returns the client that makes the calls. It follows later additions and removals.
    pub fn client(&self) -> Client {
        Client::from_combo(Choice(self.inner.clone()), (*self.defaults).clone())
    }

    /// Adds a client under a name; replaces a client of the same name.
    pub fn add(&self, name: impl Into<String>, client: Client) {
        self.add_with(name, client, Attributes::default());
    }

    /// Adds a client with the attributes that a registry would give a server, such as weight or position, for the
    /// balancer.
    pub fn add_with(&self, name: impl Into<String>, client: Client, attributes: Attributes) {
        let sub = SelectableClient::new(name.into(), client, attributes);
        self.inner.change(|subs| put(subs, sub));
    }

    /// Removes the client of this name. Returns whether there was one. A call without any client fails as unavailable.
    pub fn remove(&self, name: &str) -> bool {
        let mut was_there = false;
        self.inner.change(|subs| {
            let before = subs.len();
            subs.retain(|sub| sub.name() != name);
            was_there = subs.len() < before;
        });
        was_there
    }

    /// Returns the names of the clients, in the order in which they were added.
    pub fn names(&self) -> Vec<String> {
        self.inner.current.load().subs.iter().map(|sub| sub.name().to_owned()).collect()
    }

    /// Creates a combination without any clients.
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

    /// Replaces all clients.
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

    /// Adds a client under a name; replaces a client of the same name.
    pub fn sub_channel(self, name: impl Into<String>, client: Client) -> Self {
        self.sub_channel_with(name, client, Attributes::default())
    }

    /// Adds a client as [`Selective::add_with`] does.
    pub fn sub_channel_with(
        mut self,
        name: impl Into<String>,
        client: Client,
        attributes: Attributes,
    ) -> Self {
        put(&mut self.subs, SelectableClient::new(name.into(), client, attributes));
        self
    }

    /// Sets the balancer; a client is an instance whose address is its name. A call for which it finds no client fails.
    /// Default: round robin.
    pub fn balance(mut self, balance: impl LoadBalancer) -> Self {
        self.balance = Box::new(balance);
        self
    }

    /// Sets how many more clients are tried when one fails, each of them once, if its failure allows a retry
    /// ([`Retry`]). Retries within the clients are not counted. Default: 3.
    pub fn retries(mut self, retries: usize) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the retry budget: how many calls may be sent to another client, over all calls. Attempts that reached no
    /// server cost nothing. Retries within the clients use those clients' own budgets.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the timeout of calls without their own, over all clients together. Default: that of the first client.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = Some(timeout.into());
        self
    }

    /// Builds the combination.
    ///
    /// # Errors
    ///
    /// If there are no clients. All clients may be removed later.
    pub fn build(self) -> Result<Selective> {
        let Some(first) = self.subs.first() else {
            return Err(Status::invalid_argument("a selective client needs at least one sub-channel").into());
        };
        let mut defaults = (*first.client.defaults).clone();
        defaults.timeout = self.timeout.unwrap_or(defaults.timeout);
        Ok(Selective::new(self, defaults.into()))
    }
}

/// brpc `channel.cpp`, `max_retry`.
const RETRIES: usize = 3;

/// Client that may be picked.
#[derive(Debug, Clone)]
pub(super) struct SelectableClient {
    client: Client,
    candidate: Candidate,
}

impl SelectableClient {
    pub(super) fn new(name: String, client: Client, attributes: Attributes) -> Self {
        Self { client, candidate: Candidate::new(Instance::tcp(name).with(attributes)) }
    }

    /// Returns the same client with new attributes.
    pub(super) fn with_attributes(&self, attributes: Attributes) -> Self {
        Self { client: self.client.clone(), candidate: self.candidate.with_attributes(attributes) }
    }

    pub(super) fn name(&self) -> &str {
        &self.candidate.instance().address
    }
}

/// State shared by calls and changes of the clients.
#[derive(Debug)]
struct Inner {
    current: ArcSwap<Choices>,
    /// Held while the clients are changed.
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
        self.retry_tokens.deposit();
        loop {
            let choices = self.current.load_full();
            let began = now();
            call.options.timeout = deadline.map(|deadline| deadline.saturating_duration_since(began));
            let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let attempts = AttemptCounts {
                left: count(self.retries.saturating_sub(tried.len())),
                made: count(tried.len() + 1),
            };
            let index = choices.choose(&call, &tried, began);
            let guard = index
                .and_then(|index| ChoiceGuard::start(&choices, index, began, call.options.timeout, attempts));
            // The failure of a client is more useful than the lack of clients.
            let Some(mut guard) = guard else { return Err(failure.unwrap_or_else(no_client)) };
            let status = match guard.sub.client.call_outgoing(call.clone()).await {
                Ok(response) => {
                    guard.finish(None);
                    return Ok(response);
                }
                Err(status) => status,
            };
            guard.finish(Some(&status));
            tried.push(guard.sub.candidate.clone());
            let is_over = deadline.is_some_and(|deadline| deadline <= now());
            if is_over || tried.len() > self.retries || !self.may_try_again(&status, call.options.idempotent)
            {
                return Err(status);
            }
            failure = Some(status);
        }
    }

    /// Whether another client may be tried after this failure. Withdraws the retry from the budget.
    fn may_try_again(&self, status: &Status, idempotent: bool) -> bool {
        is_retryable(status, idempotent)
            && (is_connection_failure_before_start(status) || self.retry_tokens.withdraw(|| self.in_flight()))
    }

    /// Number of attempts in flight.
    fn in_flight(&self) -> usize {
        self.current.load().candidates.iter().map(|candidate| candidate.load().in_flight()).sum()
    }

    fn endpoints(&self) -> Vec<EndpointInfo> {
        self.current.load().subs.iter().flat_map(|sub| sub.client.endpoints()).collect()
    }
}

#[cold]
fn no_client() -> Status {
    Status::unavailable("no sub-channel is left to choose")
        .with_scope(Scope::Connection)
        .with_retry(Retry::Elsewhere)
}

/// Clients at one time.
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

    /// Picks an untried client; an ejected one only if there is no other, and never one that the balancer excludes.
    fn choose(&self, call: &OutgoingCall<'_>, tried: &[Candidate], now: Instant) -> Option<usize> {
        let is_tried = |index: &usize| self.candidates.get(*index).is_some_and(|one| was_tried(one, tried));
        let tried: Vec<_> = (0..self.subs.len()).filter(is_tried).collect();
        let context = PickContext {
            service: call.service,
            method: call.method,
            key: call.options.key,
            request: &call.body.bytes,
            now,
            candidates: &self.candidates,
            tried: &tried,
        };
        let is_new = |index: &usize| *index < self.subs.len() && !tried.contains(index);
        self.pick.pick(&context).filter(is_new).or_else(|| self.pick_healthy_or_not(&context).filter(is_new))
    }

    /// Picks as if all clients were considered healthy.
    #[cold]
    fn pick_healthy_or_not(&self, context: &PickContext<'_>) -> Option<usize> {
        let healthy = Arc::<Load>::default();
        let candidates: Vec<_> =
            self.candidates.iter().map(|candidate| candidate.with_load(&healthy)).collect();
        self.pick.pick(&PickContext { candidates: &candidates, ..*context })
    }
}

fn was_tried(one: &Candidate, tried: &[Candidate]) -> bool {
    tried.iter().any(|known| known.ptr_eq(one))
}

impl fmt::Debug for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.subs).finish()
    }
}

/// Attempt on a client, from the pick to its end. Dropping it before the end counts as a cancellation.
struct ChoiceGuard<'a> {
    choices: &'a Choices,
    index: usize,
    sub: &'a SelectableClient,
    began: Instant,
    timeout: Option<Duration>,
    attempts: AttemptCounts,
    ended: bool,
}

impl<'a> ChoiceGuard<'a> {
    fn start(
        choices: &'a Choices,
        index: usize,
        began: Instant,
        timeout: Option<Duration>,
        attempts: AttemptCounts,
    ) -> Option<Self> {
        let sub = choices.subs.get(index)?;
        sub.candidate.load().record_start();
        choices.pick.call_started(index, began);
        Some(Self { choices, index, sub, began, timeout, attempts, ended: false })
    }

    fn finish(&mut self, failure: Option<&Status>) {
        self.ended = true;
        let now = now();
        let outcome = AttemptOutcome {
            latency: now.saturating_duration_since(self.began),
            now,
            failure,
            timeout: self.timeout,
            attempts_left: self.attempts.left,
            attempts_made: self.attempts.made,
        };
        self.choices.pick.call_finished(self.index, &outcome);
        if failure.is_some_and(is_connection_failure_before_start) {
            self.sub.candidate.load().mark_unavailable_until(now + UNREACHABLE_PAUSE);
        }
    }
}

impl Drop for ChoiceGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(Some(&Status::cancelled("the attempt was cancelled")));
        }
        self.sub.candidate.load().record_end();
    }
}

/// Time for which a client that reached no server gets no calls: brpc's `channel_check_interval`.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(1);

/// Adapter that makes a client's calls.
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

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use polyrpc_core::Status;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::checked::{CheckedRegistration, ServiceAttributes};
use super::{Registration, RegistrationEvent, RegistrationHandle};
use crate::client::Result;
use crate::discovery::{Advertisement, Attributes, Instance, Registrar, jitter};
use crate::server::connections::ConnectionRegistry;
use crate::transport::Address;

/// Publishes a server in one registry, repeatedly, and withdraws it at the end.
pub(super) struct RegistrationTask {
    registry: Arc<dyn Registrar>,
    registration: Registration,
    services: Vec<Service>,
    /// The advertised address.
    instance: Instance,
    attributes: AttributeSources,
    stop: watch::Receiver<bool>,
    connections: Arc<ConnectionRegistry>,
    began: Instant,
    /// Number of consecutive failed attempts.
    failures: u32,
}

/// Sources of a server's attributes.
pub(super) struct AttributeSources {
    /// For this registry.
    pub(super) own: watch::Receiver<ServiceAttributes>,
    /// For all its registries.
    pub(super) all: RegistrationHandle,
}

struct Service {
    name: String,
    /// Whether the registry has it.
    is_entered: bool,
    /// The attributes that were last published.
    written: Attributes,
    /// The server's own attributes at that time.
    wanted: Attributes,
    /// Changes that others have made in the registry since, by attribute name.
    foreign: BTreeMap<String, Vec<String>>,
}

impl Service {
    fn new(name: String) -> Self {
        let (written, wanted) = (Attributes::new(), Attributes::new());
        Self { name, is_entered: false, written, wanted, foreign: BTreeMap::new() }
    }

    /// Returns the attributes to publish: the server's own, and others' changes unless the server has changed the
    /// attribute since.
    fn attributes(&mut self, wanted: Attributes) -> Attributes {
        let Self { wanted: before, foreign, .. } = self;
        foreign.retain(|name, _| before.values(name).eq(wanted.values(name)));
        let mut merged = wanted.clone();
        for (name, values) in foreign {
            merged.remove(name);
            values.iter().for_each(|value| merged.append(name, value));
        }
        self.wanted = wanted;
        merged
    }

    /// Records the changes of others. Returns whether there are new ones.
    fn merge_foreign(&mut self, found: &Attributes) -> bool {
        let before = self.foreign.clone();
        self.foreign.retain(|name, _| found.value(name).is_some());
        for (name, _) in found.iter().filter(|(name, _)| *name != STATE_ATTRIBUTE) {
            if !found.values(name).eq(self.written.values(name)) {
                self.foreign.insert(name.to_owned(), found.values(name).map(str::to_owned).collect());
            }
        }
        self.foreign != before
    }
}

impl RegistrationTask {
    pub(super) fn new(
        planned: CheckedRegistration,
        bound: &Address,
        open: Arc<ConnectionRegistry>,
        attributes: AttributeSources,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let CheckedRegistration { registry, registration, advertised, services, attributes: _ } = planned;
        let services = services.into_iter().map(Service::new);
        Self {
            instance: advertised.instance(bound, registration.network),
            services: services.collect(),
            registry,
            registration,
            attributes,
            stop,
            connections: open,
            began: Instant::now(),
            failures: 0,
        }
    }

    /// Runs until it is stopped and has withdrawn its entries.
    pub(super) async fn run(mut self) {
        while !*self.stop.borrow_and_update() {
            self.publish().await;
            self.wait_for_work().await;
        }
        self.withdraw().await;
    }

    /// Waits until an entry is to be refreshed or withdrawn.
    async fn wait_for_work(&mut self) {
        let pause = self.retry_delay();
        tokio::select! {
            () = sleep(pause) => {}
            Ok(()) = self.attributes.own.changed() => {}
            Ok(()) = self.stop.changed() => {}
        }
    }

    /// Returns the delay of the next attempt: short while the registry is down, so that the server is listed soon after
    /// it returns; but long enough that all its servers together do not overload it.
    fn retry_delay(&self) -> Duration {
        let every = self.registration.refresh_interval;
        jitter(match self.failures {
            0 => every,
            failures => {
                MIN_RETRY_DELAY.saturating_mul(1 << (failures - 1).min(8)).min(MAX_RETRY_DELAY).min(every / 2)
            }
        })
    }

    /// Reads the changes that others have made to the published entries.
    async fn read_registry(&mut self) {
        let entry = |service: &Service| Advertisement {
            service: service.name.clone(),
            instance: self.instance.clone().with(service.written.clone()),
            ttl: self.registration.ttl.max(self.registration.refresh_interval * 2),
        };
        let entries: Vec<_> = self.services.iter().filter(|service| service.is_entered).map(entry).collect();
        let looks = entries.into_iter().map(|entry| fetch_attributes(&*self.registry, entry));
        let found: Vec<_> = stream::iter(looks).buffered(MAX_CONCURRENT_REQUESTS).collect().await;
        for (entry, current) in found {
            // A missing entry is published again; an error of the registry is reported then, too.
            if let Some(current) = current {
                self.apply_foreign(entry, &current);
            }
        }
    }

    /// Applies others' changes of a service. A changed state holds in all registries.
    fn apply_foreign(&mut self, mut entry: Advertisement, current: &Attributes) {
        let Some(service) = self.services.iter_mut().find(|service| service.name == entry.service) else {
            return;
        };
        let state = current.value(STATE_ATTRIBUTE);
        let is_moved = state != service.written.value(STATE_ATTRIBUTE);
        if !service.merge_foreign(current) && !is_moved {
            return;
        }
        entry.instance = entry.instance.with(current.clone());
        if is_moved {
            tracing::warn!(service = %entry.service, state, "a registry overrides the state of this server");
            self.attributes.all.set_attribute(&entry.service, STATE_ATTRIBUTE, state);
        }
        self.registration.notify(RegistrationEvent::Overridden(&entry));
    }

    async fn publish(&mut self) {
        self.read_registry().await;
        let entries = self.entries();
        let attempts =
            entries.into_iter().map(|entry| attempt(&*self.registry, entry, RegistryRequest::Publish));
        let outcomes: Vec<_> = stream::iter(attempts).buffered(MAX_CONCURRENT_REQUESTS).collect().await;
        let mut all_well = true;
        // Once each time the registry is lost, however many entries fail; it is retried soon, and often.
        let mut is_told = false;
        for (service, (entry, outcome)) in self.services.iter_mut().zip(outcomes) {
            all_well &= outcome.is_ok();
            let was_entered = std::mem::replace(&mut service.is_entered, outcome.is_ok());
            service.written = entry.instance.attributes.clone();
            match &outcome {
                Ok(()) if was_entered => {}
                Ok(()) => {
                    tracing::info!(%entry, "registered");
                    self.registration.notify(RegistrationEvent::Registered(&entry));
                }
                Err(error) => {
                    if (was_entered || self.failures == 0) && !is_told {
                        is_told = true;
                        tracing::warn!(%entry, %error, "registration failed; it will be retried");
                    }
                    self.registration.notify(RegistrationEvent::Failed(&entry, error));
                }
            }
        }
        self.failures = if all_well { 0 } else { self.failures.saturating_add(1) };
    }

    /// Withdraws everything, including failed entries: the registry may have stored them without confirming.
    async fn withdraw(&mut self) {
        let entries = self.entries();
        let attempts =
            entries.into_iter().map(|entry| attempt(&*self.registry, entry, RegistryRequest::Withdraw));
        let mut outcomes = stream::iter(attempts).buffer_unordered(MAX_CONCURRENT_REQUESTS);
        let mut is_told = false;
        while let Some((entry, outcome)) = outcomes.next().await {
            match &outcome {
                Ok(()) => self.registration.notify(RegistrationEvent::Deregistered(&entry)),
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(%entry, %error, "deregistration failed; the entry expires after its TTL");
                    }
                    self.registration.notify(RegistrationEvent::Failed(&entry, error));
                }
            }
        }
    }

    /// Returns the entries to publish now.
    fn entries(&mut self) -> Vec<Advertisement> {
        let rates = self.registration.publish_rates.then(|| self.rates());
        // Later changes are published the next time.
        let own = self.attributes.own.borrow_and_update();
        let entry = |service: &mut Service| {
            let mut attributes = service.attributes(own.attributes_of(&service.name));
            if let Some(rates) = &rates {
                rates.iter().for_each(|(name, rate)| attributes.set(*name, rate));
            }
            Advertisement {
                service: service.name.clone(),
                instance: self.instance.clone().with(attributes),
                ttl: self.registration.ttl.max(self.registration.refresh_interval * 2),
            }
        };
        self.services.iter_mut().map(entry).collect()
    }

    /// Returns the calls and connections per second since the server started, in the format of rpcx's plugins:
    /// go-metrics' `RateMean` by `%.2f` (rpcx `serverplugin/mdns.go`).
    fn rates(&self) -> [(&'static str, String); 2] {
        let (calls, connections) = self.connections.totals();
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        [("calls", format!("{:.2}", rate(calls))), ("connections", format!("{:.2}", rate(connections)))]
    }
}

/// The attribute for whether calls may be sent (rpcx `client/xclient.go`).
const STATE_ATTRIBUTE: &str = "state";

const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Even with a failed attempt before, the server is listed within 5 s of its registry's return, also if its refresh
/// interval is longer.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(1500);
/// Maximum number of simultaneous requests to the registry.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// A request to a registry.
#[derive(Clone, Copy)]
enum RegistryRequest {
    Publish,
    Withdraw,
}

/// Returns the attributes of an entry in the registry, if it answers in time.
async fn fetch_attributes(
    registry: &dyn Registrar,
    entry: Advertisement,
) -> (Advertisement, Option<Attributes>) {
    let current = timeout(REQUEST_TIMEOUT, registry.current_attributes(&entry)).await;
    (entry, current.ok().and_then(Result::ok).flatten())
}

async fn attempt(
    registry: &dyn Registrar,
    entry: Advertisement,
    request: RegistryRequest,
) -> (Advertisement, Result<()>) {
    let attempt = match request {
        RegistryRequest::Publish => registry.publish(&entry),
        RegistryRequest::Withdraw => registry.withdraw(&entry),
    };
    let outcome = match timeout(REQUEST_TIMEOUT, attempt).await {
        Ok(outcome) => outcome,
        Err(_) => {
            Err(Status::deadline_exceeded(format!("the registry did not answer within {REQUEST_TIMEOUT:?}"))
                .into())
        }
    };
    (entry, outcome)
}

impl Registration {
    /// A callback that panics must not keep the server from being published.
    fn notify(&self, event: RegistrationEvent<'_>) {
        if let Some(listener) = &self.on_event {
            let _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
        }
    }
}

//! Publishes a server's services in registries: the settings ([`Registration`]) are checked when it binds (`checked`),
//! a task per registry publishes them for as long as the server runs (`driver`), and the program may change them
//! meanwhile ([`RegistrationHandle`]).

mod address;
mod checked;
mod driver;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(super) use self::checked::CheckedRegistration;

use self::checked::ServiceAttributes;
use self::driver::{AttributeSources, RegistrationTask};
use super::connections::ConnectionRegistry;
use crate::Error;
use crate::discovery::{Advertisement, Attributes, Network};
use crate::transport::Address;

/// The settings by which a server publishes its services: see [`Server::register_in`](super::Server::register_in).
///
/// ```
/// use polyrpc::discovery::Attributes;
/// use polyrpc::server::Registration;
///
/// let registration = Registration::new()
///     .advertise("10.0.0.7")
///     .attributes(Attributes::new().with("weight", "5").with("group", "blue"))
///     .publish_rates();
/// ```
#[derive(Clone)]
pub struct Registration {
    advertise: Option<String>,
    network: Option<Network>,
    attributes: Attributes,
    services: Option<Vec<String>>,
    of_services: BTreeMap<String, Attributes>,
    functions: Option<String>,
    publish_rates: bool,
    refresh_interval: Duration,
    ttl: Duration,
    deregister_timeout: Duration,
    on_event: Option<Listener>,
}

type Listener = Arc<dyn Fn(RegistrationEvent<'_>) + Send + Sync>;

/// Event of a published entry: see [`Registration::on_event`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum RegistrationEvent<'a> {
    /// The registry has accepted the entry, for the first time or again after a failure.
    Registered(&'a Advertisement),
    /// The registry rejected it, or could not be reached; it is retried.
    Failed(&'a Advertisement, &'a Error),
    /// Another party has changed its attributes in the registry, and the change is kept. If the entry is no longer
    /// [active](crate::discovery::Attributes::is_active), no client that finds the server by any of its registries
    /// sends it further calls.
    Overridden(&'a Advertisement),
    /// It was removed from the registry.
    Deregistered(&'a Advertisement),
}

impl Registration {
    /// Publishes all services, at the address of the first listener, every 3 s with a time to live of 10 s.
    pub fn new() -> Self {
        Self {
            advertise: None,
            network: None,
            attributes: Attributes::new(),
            services: None,
            of_services: BTreeMap::new(),
            functions: None,
            publish_rates: false,
            refresh_interval: Duration::from_secs(3),
            ttl: Duration::from_secs(10),
            deregister_timeout: Duration::from_secs(2),
            on_event: None,
        }
    }

    /// Sets the advertised address: a host (`10.0.0.7`, with the port of the first listener), `host:port`, or with the
    /// network (`quic@host:port`).
    ///
    /// By default it is the address of the first listener. If that is `0.0.0.0` or `[::]`, it is the address from which
    /// this machine would send to the Internet, or the loopback address if it cannot: with several networks, or behind
    /// NAT, set it here.
    #[must_use]
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// Sets the advertised network if the listener does not imply it: [`Network::Ws`] or [`Network::Http`] for a
    /// listener that accepts them in addition to its protocols.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    /// Sets attributes of every service: weight, group, state and any others.
    #[must_use]
    pub fn attributes(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// Sets attributes of one service, in addition to or instead of those of all.
    #[must_use]
    pub fn attributes_of(mut self, service: impl Into<String>, attributes: Attributes) -> Self {
        self.of_services.insert(service.into(), attributes);
        self
    }

    /// Publishes only these services. By default all that were added to the server are published, but not its built-in
    /// ones (health checks, reflection).
    #[must_use]
    pub fn services<S: Into<String>>(mut self, services: impl IntoIterator<Item = S>) -> Self {
        self.services = Some(services.into_iter().map(Into::into).collect());
        self
    }

    /// Publishes the functions without a service under this name.
    #[must_use]
    pub fn functions_as(mut self, service: impl Into<String>) -> Self {
        self.functions = Some(service.into());
        self
    }

    /// Publishes with each entry the server's calls and connections per second since its start, as `calls` and
    /// `connections`, by which clients may choose. rpcx's servers publish them.
    #[must_use]
    pub fn publish_rates(mut self) -> Self {
        self.publish_rates = true;
        self
    }

    /// Sets the refresh interval, varied by a tenth; this is also how soon entries are restored after the registry lost
    /// its data. Default: 3 s; minimum: 10 ms.
    #[must_use]
    pub fn refresh_interval(mut self, interval: Duration) -> Self {
        self.refresh_interval = interval.max(Duration::from_millis(10));
        self
    }

    /// Sets the time to live of an entry that is not refreshed, if the registry supports it. Default: 10 s; at least
    /// twice the refresh interval.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long removing the entries may delay the server's shutdown. Default: 2 s.
    #[must_use]
    pub fn deregister_timeout(mut self, limit: Duration) -> Self {
        self.deregister_timeout = limit;
        self
    }

    /// Sets a callback for events of the entries. It runs on the task that publishes them and must not block.
    #[must_use]
    pub fn on_event(mut self, listener: impl Fn(RegistrationEvent<'_>) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(listener));
        self
    }
}

impl Default for Registration {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("advertise", &self.advertise)
            .field("network", &self.network)
            .field("attributes", &self.attributes)
            .field("services", &self.services)
            .field("refresh_interval", &self.refresh_interval)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// Handle to change a running server's attributes in the registries: see
/// [`ServerHandle::registration`](super::ServerHandle::registration).
///
/// A change is published at once. Clones change the same server; without registries they do nothing.
#[derive(Debug, Clone, Default)]
pub struct RegistrationHandle(Vec<watch::Sender<ServiceAttributes>>);

impl RegistrationHandle {
    /// Returns whether the server is published in any registry.
    pub fn is_published(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns an attribute of every service, as this server set it for the first registry; changes by others are not
    /// included.
    pub fn get(&self, name: &str) -> Option<String> {
        self.0.first()?.borrow().value(name).map(str::to_owned)
    }

    /// Sets an attribute of every service, in every registry: `set("weight", "5")`, `set("state", "inactive")`.
    pub fn set(&self, name: &str, value: &str) {
        self.change(|attributes| attributes.set(name, value));
    }

    /// Sets an attribute of one service.
    pub fn set_of(&self, service: &str, name: &str, value: &str) {
        self.change(|attributes| attributes.set_of(service, name, value));
    }

    /// Sets an attribute of one service, or removes it.
    fn set_attribute(&self, service: &str, name: &str, value: Option<&str>) {
        self.change(|attributes| match value {
            Some(value) => attributes.set_of(service, name, value),
            None => attributes.remove_of(service, name),
        });
    }

    /// Removes an attribute of every service.
    pub fn remove(&self, name: &str) {
        self.change(|attributes| attributes.remove(name));
    }

    fn change(&self, change: impl Fn(&mut ServiceAttributes)) {
        for sender in &self.0 {
            sender.send_if_modified(|attributes| {
                let before = attributes.clone();
                change(attributes);
                *attributes != before
            });
        }
    }
}

/// The tasks that publish a server in registries; they are aborted when this is dropped, and their entries then expire
/// by their time to live.
#[derive(Debug)]
pub(super) struct Registrations {
    pub(super) registered: RegistrationHandle,
    drivers: JoinSet<()>,
    stop: watch::Sender<bool>,
    /// Time limit for withdrawing the entries.
    deregister_timeout: Duration,
}

impl Registrations {
    /// Starts to publish the planned registrations of a running server that listens on this address.
    pub(super) fn start(
        planned: Vec<CheckedRegistration>,
        address: &Address,
        open: &Arc<ConnectionRegistry>,
    ) -> Self {
        let stop = watch::Sender::new(false);
        let registered = RegistrationHandle(
            planned.iter().map(|planned| watch::Sender::new(planned.attributes.clone())).collect(),
        );
        let (mut drivers, mut deregister_timeout) = (JoinSet::new(), Duration::ZERO);
        for (planned, attributes) in planned.into_iter().zip(&registered.0) {
            deregister_timeout = deregister_timeout.max(planned.registration.deregister_timeout);
            let attributes = AttributeSources { own: attributes.subscribe(), all: registered.clone() };
            drivers.spawn(
                RegistrationTask::new(planned, address, open.clone(), attributes, stop.subscribe()).run(),
            );
        }
        Self { registered, drivers, stop, deregister_timeout }
    }

    /// Withdraws the entries from the registries, as far as these answer in time.
    pub(super) async fn withdraw(&mut self) {
        self.stop.send_replace(true);
        let _ = timeout(self.deregister_timeout, async { while self.drivers.join_next().await.is_some() {} })
            .await;
        self.drivers.abort_all();
    }
}

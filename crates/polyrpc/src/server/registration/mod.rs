//! How a server makes its services known: what is to be said of it ([`Registration`]) is fixed when it binds
//! (`planned`), a task for each registry says it for as long as the server runs (`driver`), and the program may change
//! it meanwhile ([`RegistrationHandle`]).

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

/// What a server makes known of itself, and how: see [`Server::register_in`](super::Server::register_in).
///
/// ```
/// use polyrpc::discovery::Attributes;
/// use polyrpc::server::Registration;
///
/// let registration = Registration::new()
///     .advertise("10.0.0.7")
///     .attributes(Attributes::new().with("weight", "5").with("group", "blue"))
///     .rates();
/// ```
#[derive(Clone)]
pub struct Registration {
    advertise: Option<String>,
    network: Option<Network>,
    attributes: Attributes,
    services: Option<Vec<String>>,
    of_services: BTreeMap<String, Attributes>,
    functions: Option<String>,
    rates: bool,
    every: Duration,
    ttl: Duration,
    withdrawal: Duration,
    on_event: Option<Listener>,
}

type Listener = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// What became of an entry: see [`Registration::on_event`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The registry has it, for the first time or again after it could not be entered.
    Entered(&'a Advertisement),
    /// The registry refused it, or could not be reached; it is tried again.
    Failed(&'a Advertisement, &'a Error),
    /// Somebody else has changed what the registry says of it, which is kept: of an entry that is not
    /// [active](crate::discovery::Attributes::is_active) any more, no client that finds the server by any of its registries
    /// sends it further calls.
    Overruled(&'a Advertisement),
    /// It was taken out.
    Withdrawn(&'a Advertisement),
}

impl Registration {
    /// All services, at the address of the first listener, entered every 3 s with a time to live of 10 s.
    pub fn new() -> Self {
        Self {
            advertise: None,
            network: None,
            attributes: Attributes::new(),
            services: None,
            of_services: BTreeMap::new(),
            functions: None,
            rates: false,
            every: Duration::from_secs(3),
            ttl: Duration::from_secs(10),
            withdrawal: Duration::from_secs(2),
            on_event: None,
        }
    }

    /// Where clients are to call: a host (`10.0.0.7`, with the port of the first listener), `host:port`, or all of it
    /// (`quic@host:port`).
    ///
    /// By default it is the address of the first listener. Where that is `0.0.0.0` or `[::]`, it is the address from
    /// which this machine would send to the Internet, or the loopback address if it cannot: with several networks,
    /// or behind a translation of addresses, say it here.
    #[must_use]
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// How clients are to call, where the listener does not tell: [`Network::Ws`] or [`Network::Http`] for one that
    /// speaks them beside its protocols.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    /// What is to be known of every service: weight, group, state and whatever else.
    #[must_use]
    pub fn attributes(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// What is to be known of one service, besides or in place of what is to be known of all.
    #[must_use]
    pub fn attributes_of(mut self, service: impl Into<String>, attributes: Attributes) -> Self {
        self.of_services.insert(service.into(), attributes);
        self
    }

    /// Enters only these services. By default all that were added to the server are entered, but not those that it
    /// brings itself (health checks, reflection).
    #[must_use]
    pub fn services<S: Into<String>>(mut self, services: impl IntoIterator<Item = S>) -> Self {
        self.services = Some(services.into_iter().map(Into::into).collect());
        self
    }

    /// Enters the functions that are in no service under this name.
    #[must_use]
    pub fn functions_as(mut self, service: impl Into<String>) -> Self {
        self.functions = Some(service.into());
        self
    }

    /// Says with each entry how many calls and connections the server has had each second since it began, as `calls`
    /// and `connections`, by which clients may choose. rpcx's servers write them.
    #[must_use]
    pub fn rates(mut self) -> Self {
        self.rates = true;
        self
    }

    /// How often it is entered anew, give or take a tenth; this is also how soon it is put right after the registry
    /// lost its data. Default: 3 s, and at least 10 ms.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.max(Duration::from_millis(10));
        self
    }

    /// For how long the registry may believe an entry that was not entered anew, where it knows of such things.
    /// Default: 10 s; at least twice as long as it takes to enter it anew.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long taking the entries out may hold up the end of the server. Default: 2 s.
    #[must_use]
    pub fn withdrawal(mut self, most: Duration) -> Self {
        self.withdrawal = most;
        self
    }

    /// Called with what becomes of the entries. It runs on the task that enters them and must not wait.
    #[must_use]
    pub fn on_event(mut self, listener: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
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
            .field("every", &self.every)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// What a running server says of itself in the registries, to be changed: see
/// [`Running::registration`](super::Running::registration).
///
/// A change is entered at once. Clones are the same; without registries they do nothing.
#[derive(Debug, Clone, Default)]
pub struct RegistrationHandle(Vec<watch::Sender<ServiceAttributes>>);

impl RegistrationHandle {
    /// Says it of every service, in every registry: `set("weight", "5")`, `set("state", "inactive")`.
    pub fn set(&self, name: &str, value: &str) {
        self.change(|said| said.set(name, value));
    }

    /// Says it of one service.
    pub fn set_of(&self, service: &str, name: &str, value: &str) {
        self.change(|said| said.set_of(service, name, value));
    }

    /// Says it of one service, or nothing under this name any more.
    fn set_attribute(&self, service: &str, name: &str, value: Option<&str>) {
        self.change(|said| match value {
            Some(value) => said.set_of(service, name, value),
            None => said.remove_of(service, name),
        });
    }

    /// Says nothing under this name any more, of any service.
    pub fn remove(&self, name: &str) {
        self.change(|said| said.remove(name));
    }

    fn change(&self, change: impl Fn(&mut ServiceAttributes)) {
        for sender in &self.0 {
            sender.send_if_modified(|said| {
                let before = said.clone();
                change(said);
                *said != before
            });
        }
    }
}

/// The tasks that enter a server into registries; they end when it is dropped, and then the entries are left to their
/// time to live.
#[derive(Debug)]
pub(super) struct Registrations {
    pub(super) registered: RegistrationHandle,
    drivers: JoinSet<()>,
    stop: watch::Sender<bool>,
    /// How long taking the entries out may take.
    withdrawal: Duration,
}

impl Registrations {
    /// Begins to enter what was planned, for a server that runs and listens at this address.
    pub(super) fn start(
        planned: Vec<CheckedRegistration>,
        address: &Address,
        open: &Arc<ConnectionRegistry>,
    ) -> Self {
        let stop = watch::Sender::new(false);
        let registered = RegistrationHandle(
            planned.iter().map(|planned| watch::Sender::new(planned.said.clone())).collect(),
        );
        let (mut drivers, mut withdrawal) = (JoinSet::new(), Duration::ZERO);
        for (planned, said) in planned.into_iter().zip(&registered.0) {
            withdrawal = withdrawal.max(planned.registration.withdrawal);
            let said = AttributeSources { own: said.subscribe(), all: registered.clone() };
            drivers
                .spawn(RegistrationTask::new(planned, address, open.clone(), said, stop.subscribe()).run());
        }
        Self { registered, drivers, stop, withdrawal }
    }

    /// Takes the entries out of the registries, as far as these answer in time.
    pub(super) async fn withdraw(&mut self) {
        self.stop.send_replace(true);
        let _ = timeout(self.withdrawal, async { while self.drivers.join_next().await.is_some() {} }).await;
        self.drivers.abort_all();
    }
}

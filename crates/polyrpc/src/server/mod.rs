//! Servers that accept every protocol on one port.
//!
//! A [`Server`] has services and functions, and listens on one or more addresses ([`Listen`]). [`Limits`]
//! bound what its peers can use. [`Hook`]s, [`ConcurrencyLimit`]s and [layers](crate::layer::Layer) surround
//! the methods. A [`Registration`] publishes the server's address. A [`ServerHandle`] shuts the running
//! server down, and a [`Monitor`] observes it.

// The modules, in the order in which a connection passes through them: `listen` accepts it, `accept_tls` does
// the TLS handshake if there is one, `detect` detects its protocol, `connection` drives it, `dispatch` routes
// each call to its method, `in_flight` keeps the pending calls, `streams` carries the messages of streaming
// calls. `data_connection` is for connections that carry no calls. `registration` publishes the server's
// address. `extensions` applies hooks, concurrency limits and layers.

mod listen;
mod proxy_header;

mod accept_tls;

mod detect;

mod connection;
mod connection_timeouts;
mod fairness;

mod authentication;
mod dispatch;
mod failed_credentials;

mod in_flight;
mod poll_round;

mod streams;
mod subscription;

mod topics;
mod unsupported_metadata;

mod data_connection;

mod registration;

mod arrival_time;
mod connections;
mod default_memory;
mod incidents;
mod limits;
mod listener_context;
mod turn_queue;

mod bound_listener;
mod built_in;
mod sessions;

mod extensions;

mod concurrency;

mod heap;

mod tick;

mod hook_chain;

mod call_record;

mod monitor;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io};

use futures_util::future::join_all;
use polyrpc_core::session::server::SessionContext;
use polyrpc_core::{Descriptor, session};
use polyrpc_payload::ByteString;
use polyrpc_wire::Protocol;
use polyrpc_wire::http;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

pub use polyrpc_wire::http::Cors;
use polyrpc_wire::rpcx::Compressors;

pub use self::concurrency::ConcurrencyLimit;
pub use self::connections::MAX_REMEMBERED_PEERS;
pub use self::limits::{Http2, Limits};
pub use self::listen::Listen;
pub use self::monitor::Monitor;
pub use self::registration::{Registration, RegistrationEvent, RegistrationHandle};
pub use self::topics::Publisher;
pub use crate::layer::hook::{AnsweredCall, Hook, IncomingCall};

use self::bound_listener::BoundListener;
use self::connections::{ConnectionCommand, ConnectionRegistry};
use self::extensions::Extensions;
use self::hook_chain::HookChain;
use self::incidents::IncidentCounters;
use self::registration::{CheckedRegistration, Registrations};
use self::sessions::{SessionFactory, sessions};
use crate::call::{Calls, Countable, Peer, ServerInfo};
use crate::client::Client;
use crate::cores::Cores;
use crate::discovery::Registrar;
use crate::introspection::{self, Health};
use crate::layer::Layers;
use crate::layers::{self, Metrics};
use crate::memory_budget::MemoryBudget;
use crate::service::{Function, IntoOutcome, Router, Service};
use crate::transfer::{self, DataConnections, Files, Streams};
use crate::transport::{Address, DeliveryFuture, Listener, Stream};

/// Builder for a server.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use polyrpc::Server;
///
/// let server = Server::new()
///     .function("echo", |text: String| async move { text })
///     .bind("127.0.0.1:8000")
///     .await?;
/// println!("listening on {}", server.address());
/// server.run().await;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Server {
    router: Router,
    limits: Limits,
    memory: Option<MemoryBudget>,
    cores: Option<Cores>,
    version: String,
    cors: Cors,
    health: Option<Health>,
    reflection: bool,
    publisher: Publisher,
    streams: Option<Streams>,
    files: Option<Files>,
    extensions: Extensions,
    registries: Vec<(Arc<dyn Registrar>, Registration)>,
    metrics: Option<Metrics>,
    exports_metrics: bool,
    compressors: Compressors,
    exposes_errors: bool,
    lame_duck: Duration,
    protocols: Vec<(Protocol, Arc<dyn SessionFactory>)>,
}

impl Server {
    /// Creates a server without services.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a service. It replaces one of the same name.
    #[must_use]
    pub fn service(mut self, service: impl Service) -> Self {
        self.router.service(service);
        self
    }

    /// Adds a function under a name. A name with a slash, `Arith/Mul`, makes it a method of a service.
    ///
    /// If serde can serialize the error of a `Result` too, the `Result` could be the value that the function returns, or
    /// the outcome of the call. [`Fallible`](crate::service::Fallible) selects the outcome:
    ///
    /// ```
    /// # use polyrpc::Server;
    /// use polyrpc::service::Fallible;
    ///
    /// let server = Server::new().function::<_, Fallible>("half", |n: i32| async move {
    ///     if n % 2 == 0 { Ok(n / 2) } else { Err(format!("{n} is odd")) }
    /// });
    /// ```
    #[must_use]
    pub fn function<Args: 'static, PlainOrFallible: 'static>(
        mut self,
        name: &str,
        function: impl Function<Args, Output: IntoOutcome<PlainOrFallible>>,
    ) -> Self {
        self.router.function(name, function);
        self
    }

    /// Returns the router, to add methods to it.
    pub(crate) fn router_mut(&mut self) -> &mut Router {
        &mut self.router
    }

    /// Returns a publisher. It sends each message to the clients that are subscribed to the topic at that time
    /// (rest_rpc).
    pub fn publisher(&self) -> Publisher {
        self.publisher.clone()
    }

    /// Lets clients publish. Adds the functions that rest_rpc's clients up to v0.20 call for it: `publish` and
    /// `publish_by_token`, with a key, a token and a value.
    #[must_use]
    pub fn allow_publish(self) -> Self {
        let publish = |publisher: Publisher| {
            move |key: ByteString, token: ByteString, value: ByteString| {
                publisher.publish_packed(&key, &token, value.into_bytes());
                std::future::ready(())
            }
        };
        let (publisher, by_token) = (self.publisher(), self.publisher());
        self.function("publish", publish(publisher)).function("publish_by_token", publish(by_token))
    }

    /// Adds a protocol of another crate. It serves connections whose first bytes `descriptor`
    /// [recognises](Descriptor::recognise) and no built-in protocol does, on every listener that is not
    /// restricted to [other protocols](Listen::protocols). `session` creates the
    /// [session](polyrpc_core::session::Server) of each connection.
    ///
    /// See [`crate::protocol`] for how to write a protocol.
    #[must_use]
    pub fn protocol<S>(
        mut self,
        descriptor: &'static Descriptor,
        session: impl Fn(&mut SessionContext<'_>) -> S + Send + Sync + 'static,
    ) -> Self
    where
        S: session::Server + Send + 'static,
    {
        self.protocols.push((descriptor.into(), sessions(session)));
        self
    }

    /// Makes a service available under another name too.
    ///
    /// # Panics
    ///
    /// If there is no service `target`: add it first.
    #[must_use]
    pub fn alias(mut self, alias: &str, target: &str) -> Self {
        assert!(self.router.alias(alias, target), "there is no service `{target}` to be called `{alias}`");
        self
    }

    /// Makes a method available under another name too: `math/times` for `Arith/Mul`, or a name without a service.
    ///
    /// # Panics
    ///
    /// If there is no method `target`: add it first.
    #[must_use]
    pub fn alias_method(mut self, alias: &str, target: &str) -> Self {
        assert!(
            self.router.alias_method(alias, target),
            "there is no method `{target}` to be called `{alias}`"
        );
        self
    }

    /// Sends callers the text of every error that a handler returns by `?`, and of all its sources, as Go servers do
    /// (`net/rpc`, rpcx). The code is [`Unknown`](crate::Code::Unknown). The message of a panic is sent too, with
    /// [`Internal`](crate::Code::Internal).
    ///
    /// Such texts may contain hosts, paths and credentials. By default callers only see an
    /// [internal](crate::Code::Internal) error, unless the error is a [`Status`](crate::Status) or a text that the
    /// handler wrote for callers: see [`Failure`](crate::Failure).
    #[must_use]
    pub fn expose_errors(mut self) -> Self {
        self.exposes_errors = true;
        self
    }

    /// Sets the server's limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Counts the bytes that the server holds for its peers in this budget, together with those of other servers and
    /// clients. The budget's size replaces [`Limits::memory`].
    #[must_use]
    pub fn memory_budget(mut self, budget: &MemoryBudget) -> Self {
        self.memory = Some(budget.clone());
        self
    }

    /// Sets the version that `GET /version` returns. Default: `polyrpc/` and the version of this crate.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Declares that a method has no side effects, as `idempotency_level = NO_SIDE_EFFECTS` does in a `.proto`:
    /// Connect's clients may call it by GET, with the message in the query. The method may be registered later.
    #[must_use]
    pub fn mark_no_side_effects(mut self, service: &str, method: &str) -> Self {
        self.router.declare_no_side_effects(service, method);
        self
    }

    /// Lets pages of other origins call from a browser: by gRPC-Web, Connect, plain HTTP or WebSocket. By default no
    /// other origin is allowed.
    #[must_use]
    pub fn cors(mut self, cors: Cors) -> Self {
        self.cors = cors;
        self
    }

    /// Answers gRPC's health checks (`grpc.health.v1.Health`) from `health`. Every service of the server is `SERVING`
    /// unless `health` sets another status; when the server [shuts down](ServerHandle::shutdown), all are `NOT_SERVING`.
    #[must_use]
    pub fn health(mut self, health: &Health) -> Self {
        self.health = Some(health.clone());
        self
    }

    /// Sets how long the server still accepts calls after [shutdown](ServerHandle::shutdown) starts, while it reports
    /// that it is not ready: its `Health`, `GET /readyz` and `GET /health` report it, the registries no longer list the
    /// server, and HTTP/1.1 responses carry `Connection: close`. Load balancers and clients can thus go elsewhere
    /// before a call is rejected. Default: zero. If load balancers or probes watch the server, set it to the time that
    /// they need to notice and react.
    ///
    /// In Kubernetes the endpoints change while SIGTERM is on its way: 5 to 10 seconds are usual. The sum with the
    /// grace period must be less than `terminationGracePeriodSeconds`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let server = polyrpc::Server::new().lame_duck(Duration::from_secs(5));
    /// ```
    #[must_use]
    pub fn lame_duck(mut self, duration: Duration) -> Self {
        self.lame_duck = duration;
        self
    }

    /// Adds gRPC's reflection (`grpc.reflection.v1` and `v1alpha`): it lists the services that have descriptors,
    /// whether they are added before or after this call, and their `.proto` files. `grpcurl`, Postman and `polyrpc
    /// call` then need none of those files. Also adds rpcx's reflection (the service `Reflection`, unless there is one
    /// of that name): it returns every service as the text of a Go program.
    #[must_use]
    pub fn reflection(mut self) -> Self {
        self.reflection = true;
        self
    }

    /// Counts calls, as a [layer](Self::layer) does, and exports the metrics: `GET /metrics`, and under brpc's names
    /// `GET /brpc_metrics`, on every listener that accepts HTTP. In other protocols they are functions, `metrics` and
    /// `brpc_metrics`; functions that the server already has under these names are kept. A listener's authenticator
    /// also checks these requests. A scraper that accepts Prometheus' protobuf format, which native
    /// histograms need, receives that format.
    #[must_use]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.exports_metrics = true;
        self.count_calls(metrics)
    }

    /// Counts calls, as a [layer](Self::layer) does, for a [`Monitor`] of the server, and adds no page to its
    /// port.
    #[must_use]
    pub fn count_calls(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self.layer(metrics.clone())
    }

    /// Lets clients open byte streams in addition to their calls, as rpcx's stream service does.
    #[must_use]
    pub fn streams(mut self, streams: Streams) -> Self {
        self.streams = Some(streams);
        self
    }

    /// Sets the compressor for each of rpcx's compressor numbers, as its callers have registered them. Default: 0 is no
    /// compression, 1 is gzip. A message with another number closes its connection, as in rpcx.
    ///
    /// ```
    /// # fn main() -> polyrpc::Result<()> {
    /// use polyrpc::rpcx::Compressors;
    /// use polyrpc::{Compression, Server};
    ///
    /// // protocol.Compressors[2] = &protocol.SnappyCompressor{}
    /// let compressors = Compressors::default().with(2, Compression::SnappyFrames)?;
    /// let server = Server::new().rpcx_compressors(compressors);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rpcx_compressors(mut self, compressors: Compressors) -> Self {
        self.compressors = compressors;
        self
    }

    /// Lets clients upload and download files, as rpcx's file transfer does.
    #[must_use]
    pub fn files(mut self, files: Files) -> Self {
        self.files = Some(files);
        self
    }

    /// Publishes the server's services in a registry. Call this again for further registries. The running server refreshes the
    /// entries until it [shuts down](ServerHandle::shutdown). Failures are [reported](Registration::on_event) and
    /// retried, and never keep the server from serving.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use std::time::Duration;
    /// use polyrpc::Server;
    /// use polyrpc::discovery::InProcess;
    /// use polyrpc::server::Registration;
    ///
    /// let registry = InProcess::new();
    /// let running = Server::new()
    ///     .function("Arith/Add", |a: i64, b: i64| async move { a + b })
    ///     .register_in(registry.clone(), Registration::new().publish_rates())
    ///     .bind("127.0.0.1:0")
    ///     .await?
    ///     .start();
    /// running.registration().set("weight", "5");
    /// running.shutdown(Duration::from_secs(1)).await;
    /// assert!(registry.list().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn register_in(mut self, registry: impl Registrar, registration: Registration) -> Self {
        self.registries.push((Arc::new(registry), registration));
        self
    }

    /// Serves connections on these threads, each with its own runtime, instead of in the caller's runtime. Connections
    /// are distributed over the threads and stay on theirs.
    #[must_use]
    pub fn executor(mut self, cores: Cores) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Starts to listen; connections are accepted once the server runs.
    ///
    /// # Errors
    ///
    /// If the address is invalid or in use, if a [limit](Self::limits) is zero that must not be, if a
    /// [hook](Hook::on_register) rejects a service, if a [registration](Self::register_in) has no service to publish or
    /// an invalid address, or if two [protocols](Self::protocol) have the same name.
    pub async fn bind(mut self, listen: impl Into<Listen>) -> io::Result<BoundServer> {
        if let Some(budget) = &self.memory {
            self.limits.memory = budget.bytes();
        }
        self.limits.check()?;
        let protocols = distinct_protocols(&self.protocols)?;
        let data = transfer::add(
            &mut self.router,
            self.streams,
            self.files,
            self.limits.transfer_tokens,
            self.limits.transfer_token_timeout,
        );
        let planned = self
            .registries
            .into_iter()
            .map(|(registry, registration)| CheckedRegistration::new(registry, registration, &self.router));
        let planned = planned.collect::<io::Result<_>>()?;
        introspection::add(&mut self.router, self.health.as_ref(), self.reflection);
        let exported = self.metrics.iter().filter(|_| self.exports_metrics);
        for (name, page) in exported.flat_map(layers::pages) {
            self.router.add_standard_function(name, page);
        }
        let times_calls = self.extensions.needs_call_times();
        let subscription_layers = self.extensions.layers_of_subscriptions();
        let incidents = Arc::<IncidentCounters>::default();
        let hooks = self.extensions.install(&self.router, &incidents)?;
        let limits = Arc::new(self.limits.within_system());
        polyrpc_heap::fit_to_budget(limits.memory);
        let budget = self.memory.as_ref();
        let open = ConnectionRegistry::new(hooks.clone(), limits.clone(), incidents, protocols, budget);
        let open = Arc::new(open);
        if let Some(metrics) = &self.metrics {
            let counts: Arc<dyn Countable> = open.clone();
            metrics.attach(Arc::downgrade(&counts));
        }
        let own_health = self.health.clone().unwrap_or_default();
        let health: Arc<dyn http::Health> = match self.health {
            Some(health) => Arc::new(health),
            None => Arc::new(introspection::DefaultHealth(own_health.clone())),
        };
        let shared = Arc::new(Shared {
            router: self.router,
            limits,
            cores: self.cores,
            version: self.version,
            cors: self.cors,
            lame_duck: self.lame_duck,
            own_health,
            health,
            data,
            open,
            publisher: self.publisher,
            compressors: self.compressors,
            hooks,
            subscription_layers,
            times_calls,
            exposes_errors: self.exposes_errors,
            added: self.protocols,
            metrics: self.metrics,
            started: SystemTime::now(),
        });
        BoundServer { shared, planned, listeners: Vec::new() }.and(listen).await
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("router", &self.router).field("limits", &self.limits).finish()
    }
}

/// State that all connections of a server share.
pub(crate) struct Shared {
    router: Router,
    limits: Arc<Limits>,
    cores: Option<Cores>,
    version: String,
    cors: Cors,
    lame_duck: Duration,
    /// The server's own health.
    own_health: Health,
    /// The health that the HTTP endpoints report.
    health: Arc<dyn http::Health>,
    data: Option<Arc<DataConnections>>,
    open: Arc<ConnectionRegistry>,
    publisher: Publisher,
    compressors: Compressors,
    hooks: HookChain,
    /// Layers around subscriptions.
    subscription_layers: Layers,
    /// Whether the arrival time is recorded for every call, not only for those with a deadline.
    times_calls: bool,
    /// Whether callers receive the text of internal errors.
    exposes_errors: bool,
    /// The protocols of other crates.
    added: Vec<(Protocol, Arc<dyn SessionFactory>)>,
    /// Counters of the server's calls, if it exports or counts them.
    metrics: Option<Metrics>,
    started: SystemTime,
}

impl Shared {
    /// Protocols of the server, in the order of detection.
    fn protocols(&self) -> impl Iterator<Item = Protocol> {
        Protocol::ALL.into_iter().chain(self.added.iter().map(|(protocol, _)| *protocol))
    }

    /// Returns the session factory of a protocol of another crate.
    fn sessions(&self, protocol: Protocol) -> Option<Arc<dyn SessionFactory>> {
        let (_, sessions) = self.added.iter().find(|(added, _)| *added == protocol)?;
        Some(sessions.clone())
    }
}

/// The protocols of a server, the built-in ones first.
///
/// # Errors
///
/// If two have the same name.
fn distinct_protocols(added: &[(Protocol, Arc<dyn SessionFactory>)]) -> io::Result<Vec<Protocol>> {
    let mut protocols = Protocol::ALL.to_vec();
    for (protocol, _) in added {
        if protocols.contains(protocol) {
            let text = format!("the server has two protocols `{}`", protocol.as_str());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        protocols.push(*protocol);
    }
    Ok(protocols)
}

/// A server that listens.
pub struct BoundServer {
    shared: Arc<Shared>,
    /// Registrations that [`BoundServer::start`] starts. Unless they set an address, they advertise the first listener.
    planned: Vec<CheckedRegistration>,
    listeners: Vec<(Option<Listener>, Arc<BoundListener>)>,
}

impl BoundServer {
    /// Listens on a further address.
    ///
    /// # Errors
    ///
    /// If the address is invalid or in use.
    pub async fn and(mut self, listen: impl Into<Listen>) -> io::Result<Self> {
        self.listeners.push(listen.into().bind(self.shared.clone()).await?);
        Ok(self)
    }

    /// Returns the address of the first listener, with the port that was actually assigned.
    pub fn address(&self) -> &Address {
        &self.listeners[0].1.context.address
    }

    /// Returns the addresses of all listeners, in the order in which they were bound.
    pub fn addresses(&self) -> Vec<&Address> {
        self.listeners.iter().map(|(_, bound)| &bound.context.address).collect()
    }

    /// Serves forever.
    pub async fn run(self) {
        self.start().wait_until_closed().await;
    }

    /// Serves until `signal` resolves, then shuts down as [`ServerHandle::shutdown`] does.
    pub async fn run_until(self, signal: impl Future<Output = ()>, grace: Duration) {
        let running = self.start();
        signal.await;
        running.shutdown(grace).await;
    }

    /// Serves in the background until the returned value is dropped. Connections are served in tasks of the current
    /// runtime, or on the threads of [`Server::executor`].
    ///
    /// # Panics
    ///
    /// If called outside of a tokio runtime.
    pub fn start(self) -> ServerHandle {
        let first = self.listeners[0].1.clone();
        let addresses: Vec<_> =
            self.listeners.iter().map(|(_, bound)| bound.context.address.clone()).collect();
        if let Some(data) = &self.shared.data {
            let takes_data = self.listeners.iter().filter(|(_, bound)| bound.context.takes_data());
            data.listens(takes_data.map(|(_, bound)| bound.context.address.clone()).collect());
        }
        let mut tasks = JoinSet::new();
        let mut watch = JoinSet::new();
        let mut deliveries = Vec::new();
        for (listener, bound) in self.listeners {
            deliveries.extend(listener.as_ref().and_then(Listener::delivery));
            if let Some(acceptor) = &bound.context.tls {
                watch.spawn(acceptor.watch());
            }
            match listener {
                Some(listener) => drop(tasks.spawn(listen::accept_loop(listener, bound))),
                None => drop(tasks.spawn(std::future::pending())),
            }
        }
        let watched = self.shared.clone();
        watch.spawn(async move { watched.open.watch().await });
        let registrations = Registrations::start(self.planned, &first.context.address, &self.shared.open);
        let accepts = Some(Arc::default());
        ServerHandle {
            shared: self.shared,
            first,
            addresses,
            accepting: tasks,
            deliveries: Mutex::new(deliveries),
            accepts,
            registrations,
            _watch: watch,
        }
    }
}

impl fmt::Debug for BoundServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundServer").field("addresses", &self.addresses()).finish()
    }
}

/// Handle of a running server. Dropping it closes its listeners and its connections at once.
pub struct ServerHandle {
    shared: Arc<Shared>,
    first: Arc<BoundListener>,
    addresses: Vec<Address>,
    accepting: JoinSet<()>,
    /// Futures that resolve once the peers of a KCP or QUIC listener have received its last data. The kernel does this
    /// for TCP and Unix sockets.
    deliveries: Mutex<Vec<DeliveryFuture>>,
    /// Held while connections are accepted: a [`Connector`] upgrades its weak reference. `None` during the shutdown.
    accepts: Option<Arc<()>>,
    registrations: Registrations,
    /// Closes slow connections and reloads certificates. It keeps running during the shutdown, so that no slow
    /// connection delays the end.
    _watch: JoinSet<()>,
}

impl ServerHandle {
    /// Returns the address of the first listener.
    pub fn address(&self) -> &Address {
        &self.addresses[0]
    }

    /// Returns the addresses of all listeners, in the order in which they were bound.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns a client that calls this server without a network, by the given built-in protocol. To call by a protocol
    /// of another crate, create a client from a URL.
    ///
    /// # Errors
    ///
    /// If the system has no sockets left, or the protocol is of another crate.
    pub fn client(&self, protocol: Protocol) -> io::Result<Client> {
        client(&self.first, protocol)
    }

    /// Returns a connector to the server's first listener, for programs that implement one of its protocols themselves.
    /// It needs no network, and does not keep the server running.
    pub fn connector(&self) -> Connector {
        let accepts = self.accepts.as_ref().map_or_else(Weak::new, Arc::downgrade);
        Connector { listener: Arc::downgrade(&self.first), accepts }
    }

    /// Returns the number of open connections.
    pub fn connection_count(&self) -> usize {
        self.shared.open.len()
    }

    /// Returns the server's counters and its current load.
    pub fn info(&self) -> ServerInfo {
        self.shared.open.facts()
    }

    /// Returns a handle to observe the server and to drain it, which does not keep it running.
    pub fn monitor(&self) -> Monitor {
        Monitor::new(Arc::downgrade(&self.shared), self.addresses.clone(), self.registration())
    }

    /// Returns a handle to change the server's attributes in the registries.
    pub fn registration(&self) -> RegistrationHandle {
        self.registrations.registered.clone()
    }

    /// Shuts down. The server reports that it is not ready and removes itself from the registries, still accepting
    /// calls for the time of [`Server::lame_duck`]. Then it accepts no more connections, rejects new calls in each
    /// protocol's own way, and waits for the accepted calls, for at most `grace`; the remaining ones are aborted.
    ///
    /// Ends with an event of `tracing` at INFO: how many calls were finished meanwhile, and how many were aborted.
    pub async fn shutdown(mut self, grace: Duration) {
        let (began, before) = (Instant::now(), self.info().calls);
        self.retire().await;
        self.accepting.shutdown().await;
        self.accepts = None;
        self.shared.own_health.close();
        self.shared.open.send_command_to_all(ConnectionCommand::Drain);
        let draining = Instant::now();
        let _ = tokio::time::timeout(grace, self.shared.open.wait_until_empty()).await;
        let after = self.info().calls;
        self.shared.open.send_command_to_all(ConnectionCommand::Close);
        let _ = tokio::time::timeout(ABORT_TIMEOUT, self.shared.open.wait_until_empty()).await;
        let deliveries = std::mem::take(self.deliveries.get_mut().unwrap_or_else(PoisonError::into_inner));
        let left = grace.saturating_sub(draining.elapsed()).max(ABORT_TIMEOUT);
        let _ = tokio::time::timeout(left, join_all(deliveries)).await;
        let ended = |calls: &Calls| calls.succeeded + calls.failed;
        tracing::info!(
            finished = ended(&after).saturating_sub(ended(&before)),
            aborted = after.in_flight(),
            took = ?began.elapsed(),
            "the server has shut down",
        );
    }

    /// Notifies callers, and accepts calls until they had time to go elsewhere.
    async fn retire(&mut self) {
        let end = tokio::time::Instant::now() + self.shared.lame_duck;
        self.shared.own_health.shutdown();
        if !self.shared.lame_duck.is_zero() {
            tracing::info!(lame_duck = ?self.shared.lame_duck, "the server is going away");
            self.shared.open.retire();
        }
        self.registrations.withdraw().await;
        self.shared.hooks.on_unregister(&self.shared.router);
        if !self.shared.lame_duck.is_zero() {
            tokio::time::sleep_until(end).await;
        }
    }

    /// Waits forever: the accept loops do not end.
    async fn wait_until_closed(mut self) {
        while self.accepting.join_next().await.is_some() {}
    }
}

/// Connector to a running server within its process. Clones connect to the same server.
#[derive(Clone)]
pub struct Connector {
    listener: Weak<BoundListener>,
    accepts: Weak<()>,
}

impl Connector {
    /// Opens a connection that may use any protocol of the listener, as over a socket; the server sees the peer as
    /// [in this process](Peer::InProcess). It counts against the server's limits like any other.
    ///
    /// # Errors
    ///
    /// If the server has shut down ([`NotConnected`](io::ErrorKind::NotConnected)), or the system has no sockets left.
    ///
    /// # Panics
    ///
    /// If called outside of a tokio runtime.
    pub fn connect(&self) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
        let (ours, theirs) = tokio::net::UnixStream::pair()?;
        listen::accept(&self.listener()?, Stream::Unix(theirs), Peer::InProcess);
        Ok(ours)
    }

    /// Returns a client with one such connection, by the given built-in protocol: as [`ServerHandle::client`].
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), or if the protocol is of another crate.
    ///
    /// # Panics
    ///
    /// If called outside of a tokio runtime.
    pub fn client(&self, protocol: Protocol) -> io::Result<Client> {
        client(&self.listener()?, protocol)
    }

    fn listener(&self) -> io::Result<Arc<BoundListener>> {
        let shut_down_error = || io::Error::new(io::ErrorKind::NotConnected, "the server has shut down");
        let _accepts = self.accepts.upgrade().ok_or_else(shut_down_error)?;
        self.listener.upgrade().ok_or_else(shut_down_error)
    }
}

/// Connects a client to a listener without a network.
fn client(listener: &Arc<BoundListener>, protocol: Protocol) -> io::Result<Client> {
    let (ours, theirs) = tokio::net::UnixStream::pair()?;
    listen::accept(listener, Stream::Unix(theirs), Peer::InProcess);
    let codec = listener.codec().filter(|_| protocol == Protocol::NetRpc);
    let query = codec.map_or_else(String::new, |codec| format!("codec={}", codec.as_str()));
    Client::from_stream(Stream::Unix(ours), protocol, &query)
        .map_err(|status| io::Error::new(io::ErrorKind::InvalidInput, status))
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// How long connections may take to close after the command to close at once.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.shared.open.send_command_to_all(ConnectionCommand::Close);
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle").field("addresses", &self.addresses).finish()
    }
}

//! The server, in the order in which a connection meets it: [`listen`](Listen) accepts it, `secure` does the handshake
//! of TLS where there is one, `detect` tells its protocol, `connection` drives it, `dispatch` brings each call to its
//! method, `in_flight` keeps those that wait, `streams` carries the messages of those that have several. `data` is for
//! connections that bring no calls. `registration` makes it known where the server is.
//!
//! What stands around that: [`ConcurrencyLimit`] limits, [`Hook`]s, and the [layers](crate::service::Layer) before methods,
//! which `extensions` puts in their places.

mod listen;

mod accept_tls;

mod detect;

mod clocks;
mod connection;

mod authentication;
mod dispatch;
mod failed_credentials;

mod in_flight;

mod streams;
mod subscription;

mod topics;
mod unsendable;

mod data_connection;

mod registration;

mod arrival_time;
mod connections;
mod incidents;
mod limits;
mod listener_context;
mod memory;

mod built_in;
mod context;
mod sessions;

mod extensions;

mod concurrency;

mod heap;

mod tick;

mod hook_chain;

mod call_record;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io};

use polyrpc_core::{Descriptor, session};
use polyrpc_wire::Protocol;
use polyrpc_wire::http;
use polyrpc_wire::net_rpc::Codec;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

pub use polyrpc_wire::http::Cors;
use polyrpc_wire::rpcx::Compressors;

pub use self::concurrency::{AutoLimit, ConcurrencyLimit, TimeoutLimit, UnknownConcurrency};
pub use self::limits::{Http2, Limits};
pub use self::listen::Listen;
pub use self::registration::{Event, Registration, RegistrationHandle};
pub use self::sessions::SessionContext;
pub use self::topics::Publisher;
pub use crate::layer::hook::{AnsweredCall, Hook, IncomingCall};

use self::connections::{ConnectionCommand, ConnectionRegistry};
use self::context::ListenerContext;
use self::extensions::Extensions;
use self::hook_chain::HookChain;
use self::incidents::IncidentCounters;
use self::registration::{CheckedRegistration, Registrations};
use self::sessions::{SessionFactory, sessions};
use crate::call::{Calls, Countable, Peer, ServerInfo};
use crate::client::Client;
use crate::codec::ByteString;
use crate::cores::Cores;
use crate::discovery::Registrar;
use crate::introspection::{self, Health};
use crate::layer::Layers;
use crate::layers::{self, Metrics};
use crate::service::{Function, IntoOutcome, Router, Service};
use crate::transfer::{self, DataConnections, Files, Streams};
use crate::transport::{Address, Listener, Stream};

/// Builder for a server.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use polyrpc::Server;
///
/// let server = Server::new()
///     .register("echo", |text: String| async move { text })
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
    compressors: Compressors,
    exposes_errors: bool,
    lame_duck: Duration,
    protocols: Vec<(Protocol, Arc<dyn SessionFactory>)>,
}

impl Server {
    /// A server without services.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a service; one of the same name is replaced.
    #[must_use]
    pub fn service(mut self, service: impl Service) -> Self {
        self.router.service(service);
        self
    }

    /// Adds a function under a name; `a.fake.service/mul` puts it into a service.
    ///
    /// A `Result` whose error serde can write too may be a value, or fail the call, and the compiler wants to know which:
    ///
    /// ```
    /// # use polyrpc::Server;
    /// use polyrpc::service::Fallible;
    ///
    /// let server = Server::new().register::<_, Fallible>("half", |n: i32| async move {
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

    /// What it offers, to be added to.
    pub(crate) fn router_mut(&mut self) -> &mut Router {
        &mut self.router
    }

    /// Publishes to clients that have subscribed, now or when the server runs (rest_rpc).
    pub fn publisher(&self) -> Publisher {
        self.publisher.clone()
    }

    /// Lets clients publish, by the functions that rest_rpc's clients up to v0.20 call for it: `publish` and
    /// `publish_by_token`, with a key, a token and a value.
    #[must_use]
    pub fn publishing(self) -> Self {
        let publish = |publisher: Publisher| {
            move |key: ByteString, token: ByteString, value: ByteString| {
                publisher.publish_packed(&key, &token, value.into_bytes());
                std::future::ready(())
            }
        };
        let (publisher, by_token) = (self.publisher(), self.publisher());
        self.function("publish", publish(publisher)).function("publish_by_token", publish(by_token))
    }

    /// Speaks a protocol of another crate as well: on every listener that does not say which ones it
    /// [speaks only](Listen::only), for connections whose first bytes it [recognises](Descriptor::recognise) and no built-in
    /// one does. `session` makes the [session](crate::protocol::session::Server) of each.
    ///
    /// How a protocol is written says [`crate::protocol`].
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

    /// Makes a service answer to another name too.
    ///
    /// # Panics
    ///
    /// When there is no service `target`: add it first.
    #[must_use]
    pub fn alias(mut self, alias: &str, target: &str) -> Self {
        assert!(self.router.alias(alias, target), "there is no service `{target}` to be called `{alias}`");
        self
    }

    /// Makes a method answer to another name too: `math/times` for `Arith/Mul`, or a name without a service.
    ///
    /// # Panics
    ///
    /// When there is no method `target`: add it first.
    #[must_use]
    pub fn alias_method(mut self, alias: &str, target: &str) -> Self {
        assert!(
            self.router.alias_method(alias, target),
            "there is no method `{target}` to be called `{alias}`"
        );
        self
    }

    /// Tells callers the text of every error that a handler fails with by `?`, and of all that caused it, as servers of Go
    /// do (`net/rpc`, rpcx), with [`Code::Unknown`](crate::Code::Unknown), and what a handler's panic says, with
    /// [`Code::Internal`](crate::Code::Internal).
    ///
    /// Such texts may name hosts, paths and credentials. By default callers learn no more than that there was an
    /// [internal](crate::Code::Internal) error, unless it is a [`Status`](crate::Status) or a text that the handler
    /// wrote for them: see [`Failure`](crate::Failure).
    #[must_use]
    pub fn expose_errors(mut self) -> Self {
        self.exposes_errors = true;
        self
    }

    /// Sets what the server takes on.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The version that `GET /version` tells. `polyrpc/` and the version of this crate by default.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Says that a method has no side effects, as `idempotency_level = NO_SIDE_EFFECTS` in a `.proto` does: it may be called
    /// by GET, over Connect with a message in the query. Neither needs to be registered yet.
    #[must_use]
    pub fn no_side_effects(mut self, service: &str, method: &str) -> Self {
        self.router.declare_harmless(service, method);
        self
    }

    /// Lets pages of other origins call from a browser, by gRPC-Web or plain HTTP; by default none may.
    #[must_use]
    pub fn cors(mut self, cors: Cors) -> Self {
        self.cors = cors;
        self
    }

    /// Answers gRPC's health checks (`grpc.health.v1.Health`) by what `health` says. Every service of the server is
    /// serving unless it was said that it is not; once the server [shuts down](Running::shutdown), none is.
    #[must_use]
    pub fn health(mut self, health: &Health) -> Self {
        self.health = Some(health.clone());
        self
    }

    /// How long the server still takes calls once it [shuts down](Running::shutdown), and says that it is not ready: its
    /// `Health`, `GET /readyz` and `GET /health` do, the registries have it no more, and answers of HTTP/1.1 bear
    /// `Connection: close`. So load balancers and clients go elsewhere before a call is refused. Zero by default: it is for
    /// servers that something watches, and takes as long as that needs to look and to tell.
    ///
    /// In Kubernetes the endpoints change while SIGTERM is on its way: 5 to 10 seconds are usual, and with the grace they
    /// must be less than `terminationGracePeriodSeconds`.
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

    /// Tells callers what the server offers, by gRPC's reflection (`grpc.reflection.v1` and `v1alpha`): the services
    /// that have descriptors, whether they are added before or after this, and their `.proto` files. So `grpcurl`,
    /// Postman and `polyrpc call` need none of those files. Also by rpcx's reflection (the service `Reflection`, unless
    /// there is one of that name): every service, as the text of a Go program.
    #[must_use]
    pub fn reflection(mut self) -> Self {
        self.reflection = true;
        self
    }

    /// Counts calls, as a [layer](Self::layer) does, and shows what was counted: `GET /metrics`, and by brpc's names
    /// `GET /brpc_metrics`, on every listener that speaks HTTP. By other protocols they are functions, `metrics` and
    /// `brpc_metrics`; functions of these names that the server has already stay as they are. A listener's authenticator
    /// judges who asks. A scraper that accepts Prometheus' protobuf format, as one does that wants native histograms, is
    /// given that.
    #[must_use]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self.layer(metrics.clone())
    }

    /// Lets clients open streams of bytes beside their calls, as rpcx's stream service does.
    #[must_use]
    pub fn streams(mut self, streams: Streams) -> Self {
        self.streams = Some(streams);
        self
    }

    /// What the numbers of rpcx's compressors stand for, as its callers have registered them. Default: none and gzip; a
    /// message of another ends its connection, as in rpcx.
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

    /// Lets clients send and fetch files, as rpcx's file transfer does.
    #[must_use]
    pub fn files(mut self, files: Files) -> Self {
        self.files = Some(files);
        self
    }

    /// Makes its services known in a registry, further ones in further calls: once the server runs, again and again, and
    /// no more once it [shuts down](Running::shutdown). What goes wrong with it is
    /// [told](Registration::on_event) and tried again, and never keeps the server from serving.
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
    ///     .register("Arith/Add", |a: i64, b: i64| async move { a + b })
    ///     .register_in(registry.clone(), Registration::new().rates())
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

    /// Serves connections on these threads, each with a runtime of its own, instead of in the caller's runtime:
    /// connections are dealt out and stay where they are.
    #[must_use]
    pub fn executor(mut self, cores: Cores) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Begins to listen; connections are accepted once the server runs.
    ///
    /// # Errors
    ///
    /// If the address is invalid or taken, if a [limit](Self::limits) is zero that must not be, if a
    /// [hook](Hook::on_register) objects, if there is nothing to be [registered](Self::register_in), or if two
    /// [protocols](Self::protocol) have one name.
    pub async fn bind(mut self, listen: impl Into<Listen>) -> io::Result<BoundServer> {
        self.limits.check()?;
        let protocols = distinct(&self.protocols)?;
        let data = transfer::add(
            &mut self.router,
            self.streams,
            self.files,
            self.limits.tokens,
            self.limits.token_timeout,
        );
        let planned = self
            .registries
            .into_iter()
            .map(|(registry, registration)| CheckedRegistration::new(registry, registration, &self.router));
        let planned = planned.collect::<io::Result<_>>()?;
        introspection::add(&mut self.router, self.health.as_ref(), self.reflection);
        for (name, page) in self.metrics.iter().flat_map(layers::pages) {
            self.router.standard_function(name, page);
        }
        let times_calls = self.extensions.time_calls();
        let subscription_layers = self.extensions.layers_of_subscriptions();
        let incidents = Arc::<IncidentCounters>::default();
        let hooks = self.extensions.install(&self.router, &incidents)?;
        let limits = Arc::new(self.limits.within_system());
        let open = Arc::new(ConnectionRegistry::new(hooks.clone(), limits.clone(), incidents, protocols));
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
        });
        BoundServer { shared, planned, listeners: Vec::new() }.and(listen).await
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("router", &self.router).field("limits", &self.limits).finish()
    }
}

/// What all connections of a server share.
pub(crate) struct Shared {
    router: Router,
    limits: Arc<Limits>,
    cores: Option<Cores>,
    version: String,
    cors: Cors,
    lame_duck: Duration,
    /// What the server itself says of how it is.
    own_health: Health,
    /// What it tells of that by HTTP.
    health: Arc<dyn http::Health>,
    data: Option<Arc<DataConnections>>,
    open: Arc<ConnectionRegistry>,
    publisher: Publisher,
    compressors: Compressors,
    hooks: HookChain,
    /// What stands around subscriptions.
    subscription_layers: Layers,
    /// Whether it is noted of every call when it came, and not only of those with a deadline.
    times_calls: bool,
    /// Callers are told errors that were not meant for them.
    exposes_errors: bool,
    /// The protocols of other crates.
    added: Vec<(Protocol, Arc<dyn SessionFactory>)>,
}

impl Shared {
    /// What it speaks, in the order in which connections are tried.
    fn protocols(&self) -> impl Iterator<Item = Protocol> {
        Protocol::ALL.into_iter().chain(self.added.iter().map(|(protocol, _)| *protocol))
    }

    /// What makes the sessions of a protocol of another crate.
    fn sessions(&self, protocol: Protocol) -> Option<Arc<dyn SessionFactory>> {
        let (_, sessions) = self.added.iter().find(|(added, _)| *added == protocol)?;
        Some(sessions.clone())
    }
}

/// The protocols of a server, the built-in ones first.
///
/// # Errors
///
/// If two have one name.
fn distinct(added: &[(Protocol, Arc<dyn SessionFactory>)]) -> io::Result<Vec<Protocol>> {
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
    /// The first listener's address is what is made known.
    planned: Vec<CheckedRegistration>,
    listeners: Vec<(Option<Listener>, Arc<ListenerContext>)>,
}

impl BoundServer {
    /// Listens at a further address.
    ///
    /// # Errors
    ///
    /// When the address is none or is taken.
    pub async fn and(mut self, listen: impl Into<Listen>) -> io::Result<Self> {
        self.listeners.push(listen.into().bind(self.shared.clone()).await?);
        Ok(self)
    }

    /// The address of the first listener, with the port that was really given.
    pub fn address(&self) -> &Address {
        &self.listeners[0].1.port.address
    }

    /// The addresses of all listeners, in the order in which they were bound.
    pub fn addresses(&self) -> Vec<&Address> {
        self.listeners.iter().map(|(_, context)| &context.port.address).collect()
    }

    /// Serves for ever.
    pub async fn run(self) {
        self.start().closed().await;
    }

    /// Serves until `signal` is ready, then shuts down as [`Running::shutdown`] does.
    pub async fn run_until(self, signal: impl Future<Output = ()>, grace: Duration) {
        let running = self.start();
        signal.await;
        running.shutdown(grace).await;
    }

    /// Serves in the background, in tasks of the current runtime, until the returned value is dropped.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(self) -> ServerHandle {
        let inside = self.listeners[0].1.clone();
        let addresses: Vec<_> =
            self.listeners.iter().map(|(_, context)| context.port.address.clone()).collect();
        if let Some(data) = &self.shared.data {
            let takes_data = self.listeners.iter().filter(|(_, context)| context.port.takes_data());
            data.listens(takes_data.map(|(_, context)| context.port.address.clone()).collect());
        }
        let mut tasks = JoinSet::new();
        let mut watch = JoinSet::new();
        for (listener, context) in self.listeners {
            if let Some(acceptor) = &context.port.tls {
                watch.spawn(acceptor.watch());
            }
            match listener {
                Some(listener) => drop(tasks.spawn(listen::accept(listener, context))),
                None => drop(tasks.spawn(std::future::pending())),
            }
        }
        let watched = self.shared.clone();
        watch.spawn(async move { watched.open.watch().await });
        let registrations = Registrations::start(self.planned, &inside.port.address, &self.shared.open);
        let open = Some(Arc::default());
        ServerHandle {
            shared: self.shared,
            inside,
            addresses,
            accepting: tasks,
            open,
            registrations,
            _watch: watch,
        }
    }
}

impl fmt::Debug for BoundServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("addresses", &self.addresses()).finish()
    }
}

/// A server that serves. Dropping it closes its listeners and its connections at once.
pub struct ServerHandle {
    shared: Arc<Shared>,
    inside: Arc<ListenerContext>,
    addresses: Vec<Address>,
    accepting: JoinSet<()>,
    /// Gone once no connections are accepted any more.
    open: Option<Arc<()>>,
    registrations: Registrations,
    /// Ends slow connections, and reads certificates anew; it goes on while the server shuts down, so that none holds
    /// up the end.
    _watch: JoinSet<()>,
}

impl ServerHandle {
    /// The address of the first listener.
    pub fn address(&self) -> &Address {
        &self.addresses[0]
    }

    /// The addresses of all listeners, in the order in which they were bound.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// A client that calls this server without a network, by the given built-in protocol. One of another crate is called
    /// by its URL.
    ///
    /// # Errors
    ///
    /// When the system has no sockets left, or the protocol is of another crate.
    pub fn client(&self, protocol: Protocol) -> io::Result<Client> {
        let (ours, theirs) = tokio::net::UnixStream::pair()?;
        listen::accept(&self.inside, Stream::Unix(theirs), Peer::InProcess);
        let codec = self.inside.codec().filter(|_| protocol == Protocol::NetRpc);
        let words = codec.map(Codec::as_str);
        Client::over_stream(Stream::Unix(ours), protocol, words.as_slice())
            .map_err(|status| io::Error::new(io::ErrorKind::InvalidInput, status))
    }

    /// A way to connect to the first listener without a network, and without keeping the server running: for who speaks
    /// one of its protocols himself.
    pub fn connector(&self) -> Connector {
        let open = self.open.as_ref().map_or_else(Weak::new, Arc::downgrade);
        Connector { context: Arc::downgrade(&self.inside), open }
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.open.len()
    }

    /// What it has done and is doing.
    pub fn info(&self) -> ServerInfo {
        self.shared.open.facts()
    }

    /// What it says of itself in the registries, to be changed.
    pub fn registration(&self) -> RegistrationHandle {
        self.registrations.registered.clone()
    }

    /// Stops: says that it is not ready and takes itself out of the registries, still taking calls for as long as
    /// [`Server::lame_duck`] sets; then accepts no more connections, refuses new calls in each protocol's own words,
    /// finishes every call that was accepted, and closes; whatever is not done within `grace` after that is cut off.
    ///
    /// An event of `tracing` at INFO says that it is over: how many calls were finished meanwhile, and how many were cut off.
    pub async fn shutdown(mut self, grace: Duration) {
        let (began, before) = (Instant::now(), self.info().calls);
        self.retire().await;
        self.accepting.shutdown().await;
        self.open = None;
        self.shared.own_health.close();
        self.shared.open.order(ConnectionCommand::Drain);
        let _ = tokio::time::timeout(grace, self.shared.open.emptied()).await;
        let after = self.info().calls;
        self.shared.open.order(ConnectionCommand::Close);
        let _ = tokio::time::timeout(CUT_OFF, self.shared.open.emptied()).await;
        let ended = |calls: &Calls| calls.succeeded + calls.failed;
        tracing::info!(
            finished = ended(&after).saturating_sub(ended(&before)),
            cut_off = after.in_flight(),
            took = ?began.elapsed(),
            "the server has shut down",
        );
    }

    /// Lets those know that call it, and takes calls until they had time to go elsewhere.
    async fn retire(&mut self) {
        let end = tokio::time::Instant::now() + self.shared.lame_duck;
        self.shared.own_health.stop();
        if !self.shared.lame_duck.is_zero() {
            tracing::info!(lame_duck = ?self.shared.lame_duck, "the server is going away");
            self.shared.open.retire();
        }
        self.registrations.withdraw().await;
        self.shared.hooks.unregistered(&self.shared.router);
        if !self.shared.lame_duck.is_zero() {
            tokio::time::sleep_until(end).await;
        }
    }

    /// Waits until the server was shut down from elsewhere, that is for ever.
    async fn closed(mut self) {
        while self.accepting.join_next().await.is_some() {}
    }
}

/// Connects to a running server within its process. Clones connect to the same.
#[derive(Clone)]
pub struct Connector {
    context: Weak<ListenerContext>,
    open: Weak<()>,
}

impl Connector {
    /// A connection on which any protocol of the listener can be spoken, as by a socket; who calls is
    /// [in this process](Peer::InProcess) for the server. It counts against its limits as others do.
    ///
    /// # Errors
    ///
    /// When the server has shut down ([`NotConnected`](io::ErrorKind::NotConnected)), or the system has no sockets left.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect(&self) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "the server has shut down");
        let _open = self.open.upgrade().ok_or_else(gone)?;
        let context = self.context.upgrade().ok_or_else(gone)?;
        let (ours, theirs) = tokio::net::UnixStream::pair()?;
        listen::accept(&context, Stream::Unix(theirs), Peer::InProcess);
        Ok(ours)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// How long connections that were told to close at once may take to do so.
const CUT_OFF: Duration = Duration::from_secs(1);

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.shared.open.order(ConnectionCommand::Close);
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses).finish()
    }
}

//! The client, in the order in which a call meets it: a typed stub or [`Client`] encodes (`exchange`), layers stand around
//! it ([`Layer`]), where there are several servers `cluster` chooses one ([`balance`]), `pool` gives a connection or has
//! one made, `connection` sends and waits, the reply is decoded. Calls with several messages take the same way (`streams`).
//!
//! A call to many at once is made by [`combo`], which `fanout` makes of a cluster's servers.
//!
//! [`blocking`] is the same without a runtime: the caller's own thread writes and reads.

#[cfg(feature = "otel")]
mod target;
mod url;

mod hook;
mod layered_call;

mod call_builder;
mod call_defaults;
mod data_connector;
mod mock;
mod unsupported_warnings;

mod failure;
mod trace_span;

mod cluster;

pub mod balance;

mod factory;
mod pool;

mod connection;

mod streams;

mod fanout;

pub mod combo;

pub mod blocking;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{Call, Compression, Descriptor, Format, Push, Status, session};
use polyrpc_wire::Protocol;
use polyrpc_wire::rest_rpc::Generation;
use polyrpc_wire::rpcx::Compressors;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use polyrpc_core::Limits;

pub use crate::call::{CallOptions, CancelHandle, OutgoingCall, Request, Response, Signature};
pub use crate::error::ClientResult as Result;

pub use self::call_builder::CallBuilder;
pub use self::cluster::{
    Backup, CircuitBreaker, EndpointInfo, FailMode, HealthCheck, RecoveryPolicy, RetryBudget,
};
pub use self::connection::Backoff;
pub use self::connection::sessions::SessionContext;
pub use self::fanout::FanoutReply;
pub use self::hook::{Attempt, Hook, OutgoingRequest, ReceivedReply};
pub use self::mock::MockCall;
pub use self::pool::ConnectionMode;
pub use self::streams::{RawCall, RawReceiver, RawSender};

use self::balance::LoadBalancer;
use self::call_defaults::CallDefaults;
use self::cluster::{Channel, ChannelConfig, RoutingOptions, SingleEndpoint};
use self::combo::Combo;
use self::connection::built_in;
use self::connection::sessions::{SessionFactory, sessions};
use self::connection::{ConnectionListeners, PushHandler};
pub(crate) use self::data_connector::DataConnector;
use self::factory::Factory;
use self::hook::Hooks;
use self::mock::Mock;
use self::pool::{Pool, PoolLimits};
use self::unsupported_warnings::UnsupportedWarnings;
use self::url::Url;
#[cfg(feature = "otel")]
use crate::call::Target;
use crate::call::redacted;
use crate::codec::{self, Body};
use crate::cores::Cores;
use crate::discovery::{self, Discover, List};
use crate::layer::{Layer, Layers, Side};
use crate::transport::{Address, Stream, TransportConnector, tls};

/// Calls a server, by whatever protocol its URL names.
///
/// Cheap to clone; clones share their connections. It connects when the first call is made, and again when
/// a connection broke.
///
/// ```no_run
/// # async fn example() -> polyrpc::Result<()> {
/// use polyrpc::Client;
///
/// let client = Client::new("rpcx://127.0.0.1:8972")?;
/// let sum: i32 = client.call("add", &(1, 2)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    defaults: Arc<CallDefaults>,
    layers: Layers,
}

#[derive(Clone)]
enum Transport {
    Network(Arc<Pool>),
    Channel(Arc<Channel>),
    /// One of a channel's.
    Server(Arc<SingleEndpoint>),
    /// Other clients.
    Combo(Arc<dyn Combo>),
    Mock(Mock),
}

impl Client {
    /// A client of the server at `url`: `baidu-std://host:port`, `rpcx://host:port`, `http://host:port`;
    /// `rpcx+unix:///path` over a Unix socket, `rpcx+ws://host:port` within a WebSocket, `http+json-rpc://host:port` by
    /// JSON-RPC 2.0; `grpc-web://host:port` for gRPC-Web over HTTP/1.1, which has one call at a time on a connection, and
    /// `grpc-web+h2://` over HTTP/2; `connect://`, `connect+tls://`, `connect+h2://` and `connect+h2+tls://` likewise for
    /// the Connect protocol, with `+get` for unary calls by GET, which servers take for methods that are declared free of
    /// side effects; `rest-rpc+v0.11://host:port` in that generation of rest_rpc, without one in the newest;
    /// `net-rpc://host:port` for Go's `net/rpc` in gob, `net-rpc+json://`, `net-rpc+msgpack://`, `net-rpc+protobuf://`
    /// and so on in another [codec](polyrpc_wire::net_rpc::Codec), `net-rpc+http://` where a server of Go speaks it
    /// behind HTTP; with TLS `grpcs://host:port`, `https://host`, `rpcx+tls://host:port` and so on (feature `tls`).
    ///
    /// A client of several servers names where they are found: `rpcx+list://host:port,host:port` and whatever else
    /// [`discovery::open`] knows.
    ///
    /// # Errors
    ///
    /// When the URL is none. Nothing is connected yet.
    pub fn new(url: &str) -> Result<Self> {
        Self::builder(url).build()
    }

    /// Builder for a client, with everything at its default.
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    /// A client whose calls `answer` answers, for tests: no server, no socket.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> polyrpc::Result<()> {
    /// use polyrpc::Client;
    /// use polyrpc::codec::Serde;
    ///
    /// let client = Client::mock(|call| call.answer::<Serde, _>(&format!("{} called", call.method)));
    /// let reply: String = client.call("greet", &"you").await?;
    /// assert_eq!(reply, "greet called");
    /// # Ok(())
    /// # }
    /// ```
    pub fn mock(answer: impl Fn(MockCall) -> crate::Result<Body> + Send + Sync + 'static) -> Self {
        let builder = Builder::new("");
        Self {
            transport: Transport::Mock(Mock::new(answer)),
            defaults: Arc::new(builder.defaults(&Url::nowhere(Protocol::Rpcx))),
            layers: Layers::default(),
        }
    }

    /// A client over a connected socket.
    pub(crate) fn over_stream(stream: Stream, protocol: Protocol, words: &[&str]) -> Result<Self, Status> {
        let builder = Builder::new("");
        let url = Url::in_process(protocol, words)?;
        let link = builder.sessions(&url)?.start(stream, None, ConnectionListeners::default());
        Ok(Self {
            transport: Transport::Network(Arc::new(Pool::fixed(link))),
            defaults: Arc::new(builder.defaults(&url)),
            layers: Layers::default(),
        })
    }

    /// The same client over the same connections, with one more layer around its calls, inside of those it has. A layer
    /// of servers refuses every call.
    #[must_use]
    pub fn layered(&self, layer: impl Layer) -> Self {
        let layer = Layers::one_for(Side::Client, layer).0;
        Self { layers: self.layers.compose(&layer), ..self.clone() }
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The same client for one of its servers, to which there is a connection.
    pub(crate) async fn pinned(&self) -> Result<Self, Status> {
        let Transport::Channel(channel) = &self.transport else { return Ok(self.clone()) };
        let call = Call { timeout: self.defaults.timeout, ..Call::new("", "", Format::Raw, Bytes::new()) };
        let lease =
            cluster::CallAttempt::over_channel(channel, call, RoutingOptions::default()).connect().await?;
        let Some(visit) = lease.guard() else { return Ok(self.clone()) };
        let pool = visit.endpoint().pool().clone();
        let mut defaults = (*self.defaults).clone();
        if let Some(address) = pool.address() {
            defaults.near = DataConnector::new(address, defaults.near.connect_timeout);
        }
        Ok(Self {
            transport: Transport::Network(pool),
            defaults: Arc::new(defaults),
            layers: self.layers.clone(),
        })
    }

    /// What telemetry names as the server.
    #[cfg(feature = "otel")]
    pub(crate) fn target(&self) -> &Target {
        &self.defaults.target
    }

    /// How it makes data connections.
    pub(crate) fn data_connector(&self) -> &DataConnector {
        &self.defaults.near
    }

    /// The protocol it speaks.
    pub fn protocol(&self) -> Protocol {
        self.defaults.protocol
    }

    /// What of rest_rpc it speaks, if that is the protocol.
    pub fn generation(&self) -> Option<Generation> {
        let is_rest_rpc = self.defaults.protocol == Protocol::RestRpc;
        is_rest_rpc.then(|| Generation::named(&self.defaults.dialect.words).unwrap_or_default())
    }

    /// What is known of the servers of a client that was built to find them; empty in a client of one server, and before
    /// the first call.
    pub fn endpoints(&self) -> Vec<EndpointInfo> {
        match &self.transport {
            Transport::Channel(channel) => channel.facts(),
            Transport::Combo(combo) => combo.endpoints(),
            Transport::Network(_) | Transport::Server(_) | Transport::Mock(_) => Vec::new(),
        }
    }

    /// The one format in which it carries messages, where protocol and URL leave no choice (net/rpc).
    pub fn only_format(&self) -> Option<Format> {
        self.defaults.dialect.format.filter(|_| self.defaults.dialect.only_format)
    }

    /// Calls a function or a method with plain types: `add`, `Arith/Mul`.
    ///
    /// A list of arguments is a tuple; a single one may stand alone.
    ///
    /// # Errors
    ///
    /// What the server answered, or why it could not be asked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call; the server may have begun it.
    pub async fn call<Resp: DeserializeOwned + 'static>(
        &self,
        target: &str,
        arguments: &(impl Serialize + ?Sized),
    ) -> Result<Resp> {
        let options = CallOptions::default();
        let body = self.defaults.encode_plain(arguments, &options)?;
        let (service, method) = split(target);
        let response = self.call_encoded(service, method, body, options).await?;
        Ok(response.decode_plain()?)
    }

    /// A call with plain types that says more than its arguments: a time-out, metadata, an attachment, a credential.
    ///
    /// ```no_run
    /// # async fn example(client: polyrpc::Client) -> polyrpc::Result<()> {
    /// use std::time::Duration;
    ///
    /// let sum: i64 = client
    ///     .request("Arith/Add")
    ///     .timeout(Duration::from_millis(200))
    ///     .metadata("tenant", "a")
    ///     .key(17)
    ///     .call(&(1, 2))
    ///     .await?;
    /// client.request("log").oneway(&"seen").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn request<'a>(&'a self, target: &'a str) -> CallBuilder<'a> {
        CallBuilder::new(self, target)
    }

    /// Calls a method with an encoded message and gives the encoded reply.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    ///
    /// # Cancel safety
    ///
    /// As [`call`](Self::call).
    pub async fn call_raw(&self, target: &str, body: Body, options: CallOptions) -> Result<Response<Body>> {
        let (service, method) = split(target);
        Ok(self.call_encoded(service, method, body, options).await?)
    }

    /// Calls a method as a typed stub does.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    ///
    /// # Cancel safety
    ///
    /// As [`call`](Self::call).
    pub async fn invoke<C, Req, Resp>(
        &self,
        signature: &Signature,
        request: impl Into<Request<Req>>,
    ) -> Result<Response<Resp>>
    where
        C: codec::Codec<Req> + codec::Codec<Resp>,
    {
        let Request { message, options } = request.into();
        let body = self.defaults.encode::<C, Req>(message, signature.input.as_ref(), &options)?;
        let response = self
            .call_encoded(signature.service, signature.called(self.defaults.protocol), body, options)
            .await?;
        Ok(response.decode::<C, Resp>(signature.output.as_ref())?)
    }

    async fn call_encoded(
        &self,
        service: &str,
        method: &str,
        body: Body,
        mut options: CallOptions,
    ) -> Result<Response<Body>, Status> {
        if let Some(cancel) = options.cancel.take() {
            // Boxed, so that calls without a handle do not pay for its size.
            return Box::pin(cancel.guard(self.call_to_end(service, method, body, options))).await;
        }
        self.call_to_end(service, method, body, options).await
    }

    async fn call_to_end(
        &self,
        service: &str,
        method: &str,
        body: Body,
        options: CallOptions,
    ) -> Result<Response<Body>, Status> {
        let call = OutgoingCall { service, method, body, options, protocol: self.defaults.protocol };
        if trace_span::is_enabled() {
            let protocol = self.defaults.protocol;
            return Box::pin(trace_span::call(service, method, protocol, self.pass_layers(call))).await;
        }
        self.pass_layers(call).await
    }

    async fn pass_layers(&self, call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        match self.layers.is_empty() {
            true => self.send(call).await,
            false => self.exchange_within_layers(call).await,
        }
    }

    /// Makes a call that has passed the layers.
    pub(crate) async fn send(&self, mut call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        if let Transport::Combo(combo) = &self.transport {
            call.options.timeout = call.options.timeout.or(self.defaults.timeout);
            call.options.idempotent |= self.defaults.idempotent;
            return combo.call(call).await;
        }
        let OutgoingCall { service, method, body, options, .. } = call;
        let routing = self.defaults.routing_options(&options);
        let (format, ended) = match &self.transport {
            Transport::Network(pool) => {
                let call = self.defaults.call(service, method, body, options)?;
                let format = call.head.format;
                let mut attempt = cluster::CallAttempt::new(
                    pool,
                    call,
                    routing.wait_for_ready,
                    self.defaults.retains_calls,
                );
                (format, attempt.call().await)
            }
            Transport::Channel(channel) => {
                let call = self.defaults.call(service, method, body, options)?;
                let format = call.head.format;
                let ended = match channel.has_backups() && !call.oneway {
                    // Boxed, so that a client without them does not pay for its size.
                    true => Box::pin(channel.exchange_with_backup(call, routing)).await,
                    false => cluster::CallAttempt::over_channel(channel, call, routing).call().await,
                };
                (format, ended)
            }
            Transport::Server(server) => {
                let call = self.defaults.call(service, method, body, options)?;
                // Boxed for the same reason.
                (call.head.format, Box::pin(server.call(call, routing)).await)
            }
            Transport::Combo(_) => return Err(Status::internal("a combination makes its calls itself")),
            Transport::Mock(mock) => return mock.call(service, method, body),
        };
        self.defaults.open(ended?, format)
    }

    /// Whether calls are kept, to be sent again.
    fn keeps(&self) -> bool {
        self.defaults.retains_calls || matches!(self.transport, Transport::Channel(_))
    }
}

/// `Service/Method`, or a function's name.
pub(crate) fn split(target: &str) -> (&str, &str) {
    target.rsplit_once('/').unwrap_or(("", target))
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(_) => f.write_str("Network"),
            Self::Channel(channel) => channel.fmt(f),
            Self::Server(server) => server.fmt(f),
            Self::Combo(combo) => combo.fmt(f),
            Self::Mock(mock) => mock.fmt(f),
        }
    }
}

/// Builder for a client.
#[must_use]
pub struct Builder {
    url: String,
    kind: ConnectionMode,
    timeout: Option<Duration>,
    connect_timeout: Duration,
    backoff: Option<Backoff>,
    format: Option<Format>,
    compression: Compression,
    compressors: Compressors,
    credential: Option<Bytes>,
    limits: Limits,
    bounds: PoolLimits,
    cores: Option<Cores>,
    keepalive: Option<Duration>,
    on_push: Option<PushHandler>,
    idempotent: bool,
    /// What was said that takes a channel.
    plan: Option<Box<ChannelConfig>>,
    layers: Layers,
    /// Why a layer, or a protocol, cannot stand here.
    misplaced: Option<Status>,
    hooks: Hooks,
    tls: Option<tls::Client>,
    #[cfg(feature = "kcp")]
    kcp: Option<crate::kcp::Config>,
    #[cfg(feature = "quic")]
    quic: Option<crate::quic::Config>,
    /// Those of other crates.
    protocols: Vec<(Protocol, BuildSessions)>,
}

/// Sets up what makes the sessions of a protocol of another crate.
type BuildSessions = Box<dyn Fn(SessionContext) -> Arc<dyn SessionFactory> + Send + Sync>;

impl Builder {
    fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            kind: ConnectionMode::default(),
            timeout: Some(Duration::from_secs(10)),
            connect_timeout: Duration::from_secs(3),
            backoff: None,
            format: None,
            compression: Compression::None,
            credential: None,
            limits: Limits::default(),
            bounds: PoolLimits { idle: 100, shared: 8 },
            cores: None,
            keepalive: None,
            compressors: Compressors::default(),
            on_push: None,
            idempotent: false,
            plan: None,
            layers: Layers::default(),
            misplaced: None,
            hooks: Hooks::default(),
            tls: None,
            #[cfg(feature = "kcp")]
            kcp: None,
            #[cfg(feature = "quic")]
            quic: None,
            protocols: Vec::new(),
        }
    }

    /// Calls by a protocol of another crate if the URL has one of its [schemes](Descriptor::schemes). `session` makes the
    /// [session](crate::protocol::session::Client) of each connection.
    ///
    /// How a protocol is written says [`crate::protocol`]. A built-in protocol of the same scheme comes first; one of the same
    /// name fails [`build`](Self::build).
    pub fn protocol<S>(
        mut self,
        descriptor: &'static Descriptor,
        session: impl Fn(&SessionContext) -> S + Send + Sync + 'static,
    ) -> Self
    where
        S: session::Client + Send + 'static,
    {
        let session = Arc::new(session);
        let build = move |context| {
            let session = session.clone();
            sessions(move || session(&context))
        };
        let protocol = descriptor.into();
        if self.known().contains(&protocol) {
            let text = format!("the client has two protocols `{}`", protocol.as_str());
            self.misplaced.get_or_insert_with(|| Status::invalid_argument(text));
        }
        self.protocols.push((protocol, Box::new(build)));
        self
    }

    /// How calls share connections. Default: [`ConnectionMode::Shared`].
    pub fn connection_mode(mut self, kind: ConnectionMode) -> Self {
        self.kind = kind;
        self
    }

    /// How long a call waits for its reply when it does not say itself; `None`: for ever. Default: 10 s. A call with
    /// several messages in a direction waits for ever unless it says otherwise. Calls with a time-out of zero fail with
    /// `deadline_exceeded` before anything is sent.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// How long making a connection may take. Default: 3 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long to wait between failed attempts to connect to a server; calls fail at once meanwhile, unless they
    /// [wait](CallOptions::wait_for_ready). Default: from 500 ms, 1.6 times as long each time, up to 5 s; in a client that
    /// chooses among servers, or repeats calls, [`Backoff::default`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// The format of every request. Default: what codec and protocol prefer.
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// How requests are compressed. Default: not.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// What the numbers of rpcx's compressors stand for, as the server has registered them. Default: none and gzip. Over
    /// rpcx, a call with a [compression](Self::compression) that is not among them fails before it is sent.
    pub fn rpcx_compressors(mut self, compressors: Compressors) -> Self {
        self.compressors = compressors;
        self
    }

    /// Credential of the caller: baidu_std's `authentication_data`, rpcx's `__AUTH`, HTTP's `Authorization`.
    pub fn credential(mut self, credential: impl Into<Bytes>) -> Self {
        self.credential = Some(credential.into());
        self
    }

    /// What is accepted from the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How many connections may wait in a pool. Default: 100.
    pub fn idle_connections(mut self, idle: usize) -> Self {
        self.bounds.idle = idle;
        self
    }

    /// How many connections [`ConnectionMode::Shared`] may make where a server allows only so many calls on each (HTTP/2).
    /// A call beyond that waits until another has ended. At least one; default: 8.
    pub fn connections(mut self, most: usize) -> Self {
        self.bounds.shared = most.max(1);
        self
    }

    /// Reads from connections on these threads instead of in the runtime of the first caller.
    pub fn executor(mut self, cores: Cores) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Asks the server this often whether it is there, where the protocol can (rpcx, gRPC); a connection whose
    /// heartbeat stays without an answer until the next is closed. Default: never; by rest_rpc, whose servers do not
    /// answer, every 5 s.
    ///
    /// gRPC's servers bear it only while they have calls to answer, and not often (grpc-go: every five minutes, unless
    /// it is told otherwise): it is done only then, and half as often once a server closed a connection for it.
    pub fn keepalive(mut self, every: Duration) -> Self {
        self.keepalive = Some(every);
        self
    }

    /// Called with each message that the server sends without being asked (rpcx). It runs on the connection's
    /// task and must not wait.
    pub fn on_push(mut self, handler: impl Fn(Push) + Send + Sync + 'static) -> Self {
        self.on_push = Some(Arc::new(handler));
        self
    }

    /// Stands around every call, inside of the layers that were added before.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        let (layer, fits) = Layers::one_for(Side::Client, layer);
        self.layers = self.layers.compose(&layer);
        self.misplaced = self.misplaced.take().or_else(|| fits.err());
        self
    }

    /// Is told of connections and attempts, behind the hooks that were added before.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks.add(hook);
        self
    }

    /// How to check the server's certificate, and what to show it, where the URL asks for TLS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: tls::Client) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How KCP is set up, where the URL asks for it; the other side must have the same cipher and shards.
    #[cfg(feature = "kcp")]
    pub fn kcp(mut self, config: crate::kcp::Config) -> Self {
        self.kcp = Some(config);
        self
    }

    /// How QUIC is set up, where the URL asks for it. Its TLS is set up by [`tls`](Self::tls).
    #[cfg(feature = "quic")]
    pub fn quic(mut self, config: crate::quic::Config) -> Self {
        self.quic = Some(config);
        self
    }

    /// Finds the servers there, in place of the one that the URL names: of the URL protocol and variants count, and an
    /// instance says by which network it is reached. It is watched from the first call on, in that call's runtime or on
    /// [`executor`](Self::executor)'s threads, until the last clone of the client is dropped.
    ///
    /// What was found stays true while the registry fails, or answers that there is nothing
    /// ([`accept_empty_resolution`](Self::accept_empty_resolution)). Servers that are said to be inactive get no calls.
    ///
    /// ```
    /// use polyrpc::Client;
    /// use polyrpc::client::FailMode;
    /// use polyrpc::discovery::{Instance, List};
    ///
    /// # fn main() -> polyrpc::Result<()> {
    /// let servers = List::new([Instance::tcp("10.0.0.1:8972"), Instance::tcp("10.0.0.2:8972")]);
    /// let client = Client::builder("rpcx://arith")
    ///     .discover(servers)
    ///     .fail_mode(FailMode::Failover)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn discover(mut self, discover: impl Discover) -> Self {
        self.plan().discover = Some(Box::new(discover));
        self
    }

    /// How a server is chosen for a call. Default: [`P2c`](balance::P2c).
    pub fn balance(mut self, balance: impl LoadBalancer) -> Self {
        self.plan().balance = Some(Box::new(balance));
        self
    }

    /// What is done when a call fails. Default: [`FailMode::Failover`], in a client that finds its servers or was told
    /// anything about what is done when calls fail; a client of one server that was not only looks for another
    /// connection.
    pub fn fail_mode(mut self, mode: FailMode) -> Self {
        self.plan().fail_mode = mode;
        self
    }

    /// How often a call that failed may be sent again. Default: 3.
    pub fn retries(mut self, retries: u32) -> Self {
        self.plan().retries = Some(retries);
        self
    }

    /// How many calls may be sent again, of all calls of the client together.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.plan().budget = budget;
        self
    }

    /// How long to wait before the same server is tried again, or any when all were; up to half of it is left out at
    /// random. Default: from 10 ms, twice as long each time, up to 1 s.
    pub fn retry_backoff(mut self, backoff: Backoff) -> Self {
        self.plan().backoff = Some(backoff);
        self
    }

    /// When a second server is asked by [`FailMode::Failbackup`].
    pub fn backup(mut self, backup: Backup) -> Self {
        self.plan().backup = backup;
        self
    }

    /// When a server that fails gets no more calls for a while. Default: never.
    pub fn circuit_breaker(mut self, breaker: CircuitBreaker) -> Self {
        self.plan().breaker = Some(breaker);
        self
    }

    /// How a server that gets no calls is asked whether it is well again. Default: [`HealthCheck::connect`].
    pub fn health_check(mut self, health: HealthCheck) -> Self {
        self.plan().health = Some(health);
        self
    }

    /// What keeps the calls of all servers from the few that come back first. Default: nothing.
    pub fn recovery(mut self, recovery: RecoveryPolicy) -> Self {
        self.plan().recovery = Some(recovery);
        self
    }

    /// Calls only servers of this group, as the registry says who is in it.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.plan().group = Some(group.into());
        self
    }

    /// Takes it for true when the registry, which had servers before, has none: calls fail then. Default: no, since that
    /// is how a registry answers which has lost its data; and after it had none, or failed, whoever is missing in its sets
    /// stays for ten seconds more, unless it cannot be reached. When all servers there are were made inactive, or put
    /// into other groups, calls fail in any case.
    pub fn accept_empty_resolution(mut self) -> Self {
        self.plan().believes_empty_sets = true;
        self
    }

    /// Every call may be executed twice with no harm, as if it said so [itself](CallOptions::idempotent).
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Makes the client. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// When the URL is none, or what TLS needs cannot be read.
    pub fn build(mut self) -> Result<Client> {
        let (url, discover) = self.resolve_url()?;
        self.build_by(url, discover)
    }

    /// Makes the client of the servers that are called so and found there.
    fn build_by(mut self, url: Url, discover: Option<Box<dyn Discover>>) -> Result<Client> {
        if let Some(status) = self.misplaced.take() {
            return Err(status.into());
        }
        let defaults = CallDefaults {
            #[cfg(feature = "otel")]
            target: discover.as_ref().map_or_else(|| Target::of(&url), |_| Target::found_by(&self.url)),
            ..self.defaults(&url)
        };
        let layers = std::mem::take(&mut self.layers);
        let transport = match (self.plan.take(), discover) {
            (None, None) => {
                let tls = self.connector(&url)?;
                Transport::Network(Arc::new(self.pool(url, tls)?))
            }
            (plan, discover) => {
                let discover = discover.unwrap_or_else(|| Box::new(List::new([url.instance()])));
                let plan = plan.map_or_else(ChannelConfig::default, |plan| *plan);
                let backoff = self.backoff.get_or_insert_default();
                if let Some(health) = &plan.health {
                    backoff.max = backoff.max.min(health.every);
                }
                let (name, factory) = (discovery::redacted(&self.url), Factory::new(self, url));
                Transport::Channel(Arc::new(Channel::new(
                    name,
                    plan,
                    discover,
                    factory,
                    defaults.retains_calls,
                )))
            }
        };
        Ok(Client { transport, defaults: Arc::new(defaults), layers })
    }

    /// Makes a client that needs no runtime.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_blocking(self) -> Result<blocking::Client> {
        blocking::Client::from_builder(self)
    }

    fn plan(&mut self) -> &mut ChannelConfig {
        self.plan.get_or_insert_default()
    }

    /// How servers are called, and who finds them unless the URL names one.
    fn resolve_url(&mut self) -> Result<(Url, Option<Box<dyn Discover>>)> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or((&self.url, ""));
        if let Some(discover) = self.plan.as_mut().and_then(|plan| plan.discover.take()) {
            return Ok((
                Url::parse(&self.url, &self.known()).or_else(|_| Url::from_scheme(scheme, &self.known()))?,
                Some(discover),
            ));
        }
        // A word that is known to the protocol names no registry (`net-rpc+http`).
        if Url::from_scheme(scheme, &self.known()).is_err() {
            let words: Vec<_> = scheme.split('+').collect();
            for (place, word) in words.iter().enumerate().skip(1) {
                if let Some(discover) = discovery::open(word, rest)? {
                    let others = words.iter().enumerate().filter(|(other, _)| *other != place);
                    let others: Vec<_> = others.map(|(_, word)| *word).collect();
                    return Ok((Url::from_scheme(&others.join("+"), &self.known())?, Some(discover)));
                }
            }
            if let Some(error) = words.iter().skip(1).find_map(|word| discovery::how_to_add(word)) {
                return Err(error.into());
            }
        }
        Ok((Url::parse(&self.url, &self.known())?, None))
    }

    /// Whether it takes a channel.
    fn uses_channel(&self) -> Result<bool> {
        let scheme = self.url.split_once("://").map_or("", |(scheme, _)| scheme);
        let names_registry = |word: &str| matches!(discovery::open(word, ""), Ok(Some(_)) | Err(_));
        Ok(self.plan.is_some()
            || Url::from_scheme(scheme, &self.known()).is_err()
                && scheme.split('+').skip(1).any(names_registry))
    }

    fn defaults(&self, url: &Url) -> CallDefaults {
        let protocol = url.protocol;
        let descriptor = protocol.descriptor();
        CallDefaults {
            protocol,
            dialect: url.dialect.clone(),
            descriptor,
            timeout: self.timeout,
            format: self.format,
            compression: self.compression,
            max_decompressed: self.limits.decompressed,
            retains_calls: descriptor.capabilities.refuses_unprocessed,
            idempotent: self.idempotent,
            unsupported: UnsupportedWarnings::of(protocol),
            near: DataConnector::new(&url.address, self.connect_timeout),
            #[cfg(feature = "otel")]
            target: Target::of(url),
        }
    }

    /// What connections are made with.
    fn dialing(&self, url: &Url) -> Result<TransportConnector, Status> {
        match url.address {
            Address::Tcp(_) | Address::Unix(_) => Ok(TransportConnector::Socket),
            #[cfg(feature = "kcp")]
            Address::Kcp(_) => {
                let settings = polyrpc_kcp::Settings::new(self.kcp.clone().unwrap_or_default());
                let settings = settings.map_err(|error| Status::invalid_argument(format!("KCP: {error}")))?;
                Ok(TransportConnector::Kcp(Arc::new(settings)))
            }
            #[cfg(not(feature = "kcp"))]
            Address::Kcp(_) => {
                Err(Status::unimplemented("this program was built without KCP (polyrpc's feature `kcp`)"))
            }
            #[cfg(feature = "quic")]
            Address::Quic(_) => {
                let config = self.quic.clone().unwrap_or_default();
                crate::quic::Connector::new(&config, self.tls.as_ref(), url.begins_with(), url.host())
                    .map(TransportConnector::Quic)
            }
            #[cfg(not(feature = "quic"))]
            Address::Quic(_) => {
                Err(Status::unimplemented("this program was built without QUIC (polyrpc's feature `quic`)"))
            }
        }
    }

    /// What TLS is made with, if the URL asks for it.
    fn connector(&self, url: &Url) -> Result<Option<tls::Connector>, Status> {
        match (&self.tls, url.tls) {
            (settings, true) => tls::connector(settings.as_ref(), url.begins_with(), url.host()).map(Some),
            (None, false) => Ok(None),
            // It is QUIC's.
            (Some(_), false) if matches!(url.address, Address::Quic(_)) => Ok(None),
            // What was meant to be secret must not go out in clear text.
            (Some(_), false) => Err(Status::invalid_argument(format!(
                "`{}` is for clear text, but TLS was set up: write +tls behind the protocol",
                discovery::redacted(&self.url)
            ))),
        }
    }

    /// What makes the sessions of connections to a server at this URL.
    fn sessions(&self, url: &Url) -> Result<Arc<dyn SessionFactory>, Status> {
        let context = SessionContext {
            limits: self.limits.clone(),
            credential: self.credential.clone(),
            dialect: url.dialect.clone(),
            authority: url.authority(),
            is_secured: url.tls,
            connect: url.connect.clone(),
            compressors: self.compressors,
        };
        let added = self.protocols.iter().find(|(added, _)| *added == url.protocol);
        let sessions = match added {
            Some((_, build)) => build(context.clone()),
            None => built_in::of(url.protocol, context.clone())?,
        };
        Ok(match &url.websocket {
            None => sessions,
            Some(path) => built_in::within_websocket(sessions, &context, path),
        })
    }

    /// What URLs may name.
    fn known(&self) -> Vec<Protocol> {
        Protocol::ALL.into_iter().chain(self.protocols.iter().map(|(added, _)| *added)).collect()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("url", &discovery::redacted(&self.url))
            .field("kind", &self.kind)
            .field("credential", &redacted(self.credential.as_ref()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

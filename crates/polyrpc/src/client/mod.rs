//! Clients that call servers over any protocol.
//!
//! A [`Client`] is created from a URL, which names the protocol and the server, or the registry that lists
//! the servers. Its [`Builder`] sets timeouts, connections ([`ConnectionMode`]), load balancing
//! ([`balance`]), retries ([`FailMode`]), a [`CircuitBreaker`] and [layers](crate::layer::Layer). [`combo`]
//! calls many servers at once.
//!
//! [`blocking`](crate::blocking) is the same without a runtime: the caller's thread reads and writes.

// The modules, in the order of a call: a typed stub or `Client` encodes the request (`call_defaults`); layers
// wrap it; with several servers, `cluster` picks one (`balance`); `pool` provides a connection; `connection`
// sends the call and waits; the reply is decoded. Streaming calls follow the same path (`streams`). `fanout`
// creates a `combo` from the servers of a cluster.

mod target;
mod url;

mod aliases;
mod hook;
mod layered_call;

mod call_defaults;
mod data_connector;
mod mock;
mod unsupported_warnings;

mod retryable;
mod trace_span;

mod cluster;

pub mod balance;

mod factory;
mod pool;

mod connection;

mod streams;

mod fanout;

pub mod combo;

pub(crate) mod blocking;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::session::client::SessionContext;
use polyrpc_core::{Call, Compression, Descriptor, Format, Push, Status, session};
use polyrpc_wire::Protocol;
use polyrpc_wire::rest_rpc::Version;
use polyrpc_wire::rpcx::Compressors;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use polyrpc_core::Limits;

pub use crate::call::{CallOptions, CancelHandle, OutgoingCall, Request, Response, StubMethod};
pub use crate::error::ClientResult as Result;

pub use self::cluster::{CircuitBreaker, EndpointInfo, FailMode, HealthCheck, RetryBudget};
pub use self::connection::Backoff;
pub use self::hook::{Attempt, Hook};
pub use self::pool::ConnectionMode;
pub use self::streams::{RawCall, RawReceiver, RawSender};
pub use self::url::{registry_url, url_parameters};

use self::aliases::Aliases;
use self::balance::LoadBalancer;
use self::call_defaults::CallDefaults;
use self::cluster::{Backup, Channel, ChannelConfig, RecoveryPolicy, RoutingOptions, SingleEndpoint};
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
use self::url::{DiscoveryUrl, Url};
use crate::call::Target;
use crate::call::redact;
use crate::codec::{self, Body};
use crate::cores::Cores;
use crate::discovery::{self, Discover, List};
use crate::layer::{Layer, Layers, Side};
use crate::memory_budget::MemoryBudget;
use crate::transport::{Address, Stream, TransportConnector, tls};

/// Client of a server, for any protocol that its URL names.
///
/// Cheap to clone; clones share their connections. It connects with the first call, and reconnects after a connection
/// failed.
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
    backend: Backend,
    defaults: Arc<CallDefaults>,
    layers: Layers,
}

/// The destination of a client's calls.
#[derive(Clone)]
enum Backend {
    /// One server.
    Network(Arc<Pool>),
    /// The servers of a cluster.
    Channel(Arc<Channel>),
    /// A server of a channel.
    Server(Arc<SingleEndpoint>),
    /// A combination of other clients.
    Combo(Arc<dyn Combo>),
    /// A function of a test.
    Mock(Mock),
}

impl Client {
    /// Creates a client of the server at `url`: `protocol[+tls][+registry]://address[?parameters]`.
    ///
    /// * The **protocol** is `baidu-std`, `rpcx`, `fb-rpc`, `grpc`, `grpc-web`, `connect`, `http`, `rest-rpc` or
    ///   `net-rpc`. `+tls` after it adds TLS (feature `tls`); `grpcs` and `https` are `grpc+tls` and `http+tls`.
    /// * The **address** is `host:port`, or an empty host and the path of a Unix socket: `rpcx:///run/echo.sock`.
    /// * **Parameters** select the transport and the dialect of the protocol:
    ///
    /// | parameter | values | default | URLs of | selects |
    /// |---|---|---|---|---|
    /// | `transport` | `tcp`, `unix`, `ws`, `kcp`, `quic`, `http-connect` (only `rpcx`, `net-rpc`) | `tcp` | `baidu-std`, `rpcx`, `fb-rpc`, `grpc`, `grpc-web`, `connect`, `http`, `rest-rpc`, `net-rpc` | transport of the protocol; an empty host implies unix |
    /// | `http_path` | text | none | `baidu-std`, `rpcx`, `fb-rpc`, `grpc`, `grpc-web`, `connect`, `http`, `rest-rpc`, `net-rpc` | path and query of the HTTP request that opens a WebSocket or a CONNECT tunnel |
    /// | `version` | `frpc`, `frpc-two-dots`, `brpc`, `brpc-two-dots` | `frpc` | `fb-rpc` | magic of frames, and the number of dots in the hashed service name |
    /// | `version` | `0.21`, `0.20`, `0.12`, `2023-02-16`, `2022-12-23`, `0.11`, `0.10`, `0.09`, `0.08`, `0.07`, `0.06`, `0.05`, `0.04`, `0.03`, `0.02`, `0.01` | `0.21` | `rest-rpc` | release tag of rest_rpc, or the date of a commit between two tags |
    /// | `http_version` | `1.1`, `2` | `1.1` | `grpc-web`, `connect` | version of HTTP |
    /// | `http_method` | `post`, `get` | `post` | `connect` | HTTP method of unary calls; get is for methods declared free of side effects |
    /// | `dialect` | `path`, `json-rpc` | `path` | `http` | whether the method is named in the request path or in a JSON-RPC 2.0 message |
    /// | `byte_order` | `little`, `big` | `little` | `rest-rpc` | byte order of the header; big needs version 0.21 |
    /// | `codec` | `gob`, `json`, `msgpack`, `protobuf`, `gencode`, `colfer`, `bson` | `gob` | `net-rpc` | encoding of headers and bodies |
    ///
    /// A **registry** lists several servers: `rpcx+list://host:port,host:port`, `grpc+dns://host:port`,
    /// `rpcx+tls+etcd://host:port/base/Service`. The keywords are those of [`discovery::open`]. Then the address
    /// belongs to the registry, and so do all parameters that are not the protocol's.
    ///
    /// Anything else is an error: an unknown parameter, one that occurs twice, or one that does not apply.
    /// [`url_parameters`] returns the parameters of a protocol, and `docs/guides/urls.md` has examples.
    ///
    /// # Errors
    ///
    /// If the URL is invalid. No connection is made yet.
    pub fn new(url: &str) -> Result<Self> {
        Self::builder(url).build()
    }

    /// Creates a builder for a client with default settings.
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    /// Creates a client for tests. Its calls are answered by `answer`, without a server or a socket.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> polyrpc::Result<()> {
    /// use polyrpc::Client;
    /// use polyrpc::codec::Serde;
    ///
    /// let client = Client::mock(|call| call.encode_reply::<Serde, _>(&format!("{} called", call.method)));
    /// let reply: String = client.call("greet", &"you").await?;
    /// assert_eq!(reply, "greet called");
    /// # Ok(())
    /// # }
    /// ```
    pub fn mock(answer: impl Fn(OutgoingCall<'_>) -> crate::Result<Body> + Send + Sync + 'static) -> Self {
        let builder = Builder::new("");
        Self {
            backend: Backend::Mock(Mock::new(answer)),
            defaults: Arc::new(builder.defaults(&Url::without_server(Protocol::Rpcx))),
            layers: Layers::default(),
        }
    }

    /// Creates a client over a connected socket.
    pub(crate) fn from_stream(stream: Stream, protocol: Protocol, query: &str) -> Result<Self, Status> {
        let builder = Builder::new("");
        let url = Url::in_process(protocol, query)?;
        let connection = builder.sessions(&url)?.start(stream, None, ConnectionListeners::default());
        Ok(Self {
            backend: Backend::Network(Arc::new(Pool::from_connection(connection))),
            defaults: Arc::new(builder.defaults(&url)),
            layers: Layers::default(),
        })
    }

    /// Returns a client over the same connections, with one more layer around its calls, inside the existing layers. A
    /// layer for servers rejects every call.
    #[must_use]
    pub fn layered(&self, layer: impl Layer) -> Self {
        let layer = Layers::one_for(Side::Client, layer).0;
        Self { layers: self.layers.compose(&layer), ..self.clone() }
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Returns the same client restricted to one of its servers, which is connected.
    pub(crate) async fn pin_to_server(&self) -> Result<Self, Status> {
        let Backend::Channel(channel) = &self.backend else { return Ok(self.clone()) };
        let call = Call { timeout: self.defaults.timeout, ..Call::new("", "", Format::Raw, Bytes::new()) };
        let connection =
            cluster::CallAttempt::through_channel(channel, call, RoutingOptions::default()).connect().await?;
        let Some(guard) = connection.guard() else { return Ok(self.clone()) };
        let pool = guard.endpoint().pool().clone();
        let mut defaults = (*self.defaults).clone();
        if let Some(address) = pool.address() {
            defaults.near = DataConnector::new(address, defaults.near.connect_timeout);
        }
        Ok(Self {
            backend: Backend::Network(pool),
            defaults: Arc::new(defaults),
            layers: self.layers.clone(),
        })
    }

    /// Returns the name of the server for telemetry.
    pub(crate) fn target(&self) -> &Target {
        &self.defaults.target
    }

    /// Returns the connector of data connections.
    pub(crate) fn data_connector(&self) -> &DataConnector {
        &self.defaults.near
    }

    /// Returns the protocol of the client.
    pub fn protocol(&self) -> Protocol {
        self.defaults.protocol
    }

    /// Returns the version of rest_rpc, if that is the protocol.
    pub fn rest_rpc_version(&self) -> Option<Version> {
        let is_rest_rpc = self.defaults.protocol == Protocol::RestRpc;
        is_rest_rpc.then(|| Version::selected_by(&self.defaults.dialect.parameters).unwrap_or_default())
    }

    /// Returns the state of the client's servers. It is empty for a client with discovery before its first call, and for
    /// a client in its server's process.
    ///
    /// A client of one server counts the calls that it sent; a failed attempt to connect counts as another call.
    pub fn endpoints(&self) -> Vec<EndpointInfo> {
        match &self.backend {
            Backend::Channel(channel) => channel.endpoint_infos(),
            Backend::Combo(combo) => combo.endpoints(),
            Backend::Network(pool) => EndpointInfo::from_pool(pool).into_iter().collect(),
            Backend::Server(_) | Backend::Mock(_) => Vec::new(),
        }
    }

    /// Whether calls in flight can share a connection. HTTP/1 (also with gRPC-Web and Connect) and some versions of
    /// rest_rpc make one call at a time on each.
    pub fn is_multiplexed(&self) -> bool {
        !self.defaults.dialect.one_at_a_time
    }

    /// Whether a call's response begins only after its last request: gRPC-Web and Connect over HTTP/1.1.
    pub fn is_half_duplex(&self) -> bool {
        self.defaults.dialect.within_http1
    }

    /// Returns the only format for messages, if protocol and URL leave no choice (net/rpc).
    pub fn only_format(&self) -> Option<Format> {
        self.defaults.dialect.format.filter(|_| self.defaults.dialect.only_format)
    }

    /// Calls a function or a method with plain types: `add`, `Arith/Mul`.
    ///
    /// Pass several arguments as a tuple, and a single one as it is.
    ///
    /// # Errors
    ///
    /// The failure returned by the server, or the reason why the server could not be called.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call; the server may have started it.
    pub async fn call<Resp: DeserializeOwned + 'static>(
        &self,
        target: &str,
        arguments: &(impl Serialize + ?Sized),
    ) -> Result<Resp> {
        let response = self.call_plain(target, arguments, CallOptions::default()).await?;
        Ok(response.decode_plain()?)
    }

    /// Calls a method as [`call`](Self::call) does, with options: timeout, metadata, attachment, credential. Returns
    /// the full response: result, metadata, trailers and attachment.
    ///
    /// ```no_run
    /// # async fn example(client: polyrpc::Client) -> polyrpc::Result<()> {
    /// use std::time::Duration;
    ///
    /// use polyrpc::client::Request;
    ///
    /// let request = Request::new((1, 2))
    ///     .with_timeout(Duration::from_millis(200))
    ///     .with_metadata("tenant", "a")
    ///     .with_key(17);
    /// let sum = client.call_with::<i64>("Arith/Add", request).await?.message;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`call`](Self::call).
    ///
    /// # Cancel safety
    ///
    /// See [`call`](Self::call).
    pub async fn call_with<Resp: DeserializeOwned + 'static>(
        &self,
        target: &str,
        request: Request<impl Serialize>,
    ) -> Result<Response<Resp>> {
        Ok(self.call_plain(target, &request.message, request.options).await?.read_plain()?)
    }

    /// Sends a call without waiting for a result.
    ///
    /// ```no_run
    /// # async fn example(client: polyrpc::Client) -> polyrpc::Result<()> {
    /// client.oneway("log", "seen").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the call could not be sent. Failures of the server are not reported.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the call unsent.
    pub async fn oneway<T: Serialize>(&self, target: &str, request: impl Into<Request<T>>) -> Result<()> {
        let request: Request<T> = request.into();
        let Request { message, options } = request.with_oneway();
        self.call_plain(target, &message, options).await?;
        Ok(())
    }

    async fn call_plain(
        &self,
        target: &str,
        arguments: &(impl Serialize + ?Sized),
        options: CallOptions,
    ) -> Result<Response<Body>, Status> {
        let body = self.defaults.encode_plain(arguments, &options)?;
        let (service, method) = split(target);
        self.call_encoded(service, method, body, options).await
    }

    /// Calls a method with an encoded message and returns the encoded reply.
    ///
    /// # Errors
    ///
    /// See [`call`](Self::call).
    ///
    /// # Cancel safety
    ///
    /// See [`call`](Self::call).
    pub async fn call_raw(&self, target: &str, body: Body, options: CallOptions) -> Result<Response<Body>> {
        let (service, method) = split(target);
        Ok(self.call_encoded(service, method, body, options).await?)
    }

    /// Calls a method for a typed stub.
    ///
    /// # Errors
    ///
    /// See [`call`](Self::call).
    ///
    /// # Cancel safety
    ///
    /// See [`call`](Self::call).
    pub async fn invoke<C, Req, Resp>(
        &self,
        stub_method: &StubMethod,
        request: impl Into<Request<Req>>,
    ) -> Result<Response<Resp>>
    where
        C: codec::Codec<Req> + codec::Codec<Resp>,
    {
        let Request { message, options } = request.into();
        let body = self.defaults.encode::<C, Req>(message, stub_method.input.as_ref(), &options)?;
        let response = self
            .call_encoded(stub_method.service, stub_method.name_in(self.defaults.protocol), body, options)
            .await?;
        Ok(response.decode::<C, Resp>(stub_method.output.as_ref())?)
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
            return Box::pin(trace_span::call(service, method, protocol, self.call_through_layers(call)))
                .await;
        }
        self.call_through_layers(call).await
    }

    async fn call_through_layers(&self, call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        match self.layers.is_empty() {
            true => self.send(call).await,
            false => self.call_within_layers(call).await,
        }
    }

    /// Sends a call that has passed the layers.
    pub(crate) async fn send(&self, mut call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        if let Backend::Combo(combo) = &self.backend {
            call.options.timeout = call.options.timeout.or(self.defaults.timeout);
            call.options.idempotent |= self.defaults.idempotent;
            return combo.call(call).await;
        }
        if let Backend::Mock(mock) = &self.backend {
            call.options.timeout = call.options.timeout.or(self.defaults.timeout);
            return mock.call(call);
        }
        let OutgoingCall { service, method, body, options, .. } = call;
        let routing = self.defaults.routing_options(&options);
        let (format, ended) = match &self.backend {
            Backend::Network(pool) => {
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
            Backend::Channel(channel) => {
                let call = self.defaults.call(service, method, body, options)?;
                let format = call.head.format;
                let ended = match channel.has_backups() && !call.oneway {
                    // Boxed, so that clients without backup requests do not pay for their size.
                    true => Box::pin(channel.exchange_with_backup(call, routing)).await,
                    false => cluster::CallAttempt::through_channel(channel, call, routing).call().await,
                };
                (format, ended)
            }
            Backend::Server(server) => {
                let call = self.defaults.call(service, method, body, options)?;
                // Boxed for the same reason.
                (call.head.format, Box::pin(server.call(call, routing)).await)
            }
            Backend::Combo(_) => return Err(Status::internal("a combination makes its calls itself")),
            Backend::Mock(_) => return Err(Status::internal("a mock answers its calls itself")),
        };
        self.defaults.open(ended?, format)
    }

    /// Whether calls are retained, to be sent again.
    fn retains_calls(&self) -> bool {
        self.defaults.retains_calls || matches!(self.backend, Backend::Channel(_))
    }
}

/// Splits `Service/Method`; the name of a function has no service.
pub(crate) fn split(target: &str) -> (&str, &str) {
    target.rsplit_once('/').unwrap_or(("", target))
}

impl fmt::Debug for Backend {
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
    connect_backoff: Option<Backoff>,
    format: Option<Format>,
    compression: Compression,
    compressors: Compressors,
    credential: Option<Bytes>,
    limits: Limits,
    memory: Option<MemoryBudget>,
    pool_limits: PoolLimits,
    cores: Option<Cores>,
    keepalive: Option<Duration>,
    on_push: Option<PushHandler>,
    idempotent: bool,
    /// Settings that require a channel.
    channel_config: Option<Box<ChannelConfig>>,
    layers: Layers,
    /// Error for a layer or a protocol that cannot be used here.
    misplaced: Option<Status>,
    aliases: Aliases,
    hooks: Hooks,
    tls: Option<tls::Client>,
    #[cfg(feature = "kcp")]
    kcp: Option<crate::kcp::Config>,
    #[cfg(feature = "quic")]
    quic: Option<crate::quic::Config>,
    /// Protocols of other crates.
    protocols: Vec<(Protocol, BuildSessions)>,
}

/// Creates the session factory for a protocol of another crate.
type BuildSessions = Box<dyn Fn(SessionContext) -> Arc<dyn SessionFactory> + Send + Sync>;

impl Builder {
    fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            kind: ConnectionMode::default(),
            timeout: Some(Duration::from_secs(10)),
            connect_timeout: Duration::from_secs(3),
            connect_backoff: None,
            format: None,
            compression: Compression::None,
            credential: None,
            limits: Limits::default(),
            memory: None,
            pool_limits: PoolLimits { idle: 100, shared: 8 },
            cores: None,
            keepalive: None,
            compressors: Compressors::default(),
            on_push: None,
            idempotent: false,
            channel_config: None,
            layers: Layers::default(),
            misplaced: None,
            aliases: Aliases::default(),
            hooks: Hooks::default(),
            tls: None,
            #[cfg(feature = "kcp")]
            kcp: None,
            #[cfg(feature = "quic")]
            quic: None,
            protocols: Vec::new(),
        }
    }

    /// Adds a protocol of another crate, for URLs with one of its [schemes](Descriptor::schemes). `session` creates the
    /// [session](polyrpc_core::session::Client) of each connection.
    ///
    /// [`crate::protocol`] explains how to implement a protocol. A built-in protocol with the same scheme takes
    /// precedence; one with the same name makes [`build`](Self::build) fail.
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
        if self.known_protocols().contains(&protocol) {
            let text = format!("the client has two protocols `{}`", protocol.as_str());
            self.misplaced.get_or_insert_with(|| Status::invalid_argument(text));
        }
        self.protocols.push((protocol, Box::new(build)));
        self
    }

    /// Sets how calls share connections. Default: [`ConnectionMode::Shared`].
    pub fn connection_mode(mut self, mode: ConnectionMode) -> Self {
        self.kind = mode;
        self
    }

    /// Sets the default timeout of calls; `None`: unlimited. Default: 10 s. Streaming calls have no timeout unless they
    /// set one. Calls with a timeout of zero fail with `deadline_exceeded` before anything is sent.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// Sets the timeout for connecting. Default: 3 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the delay between failed attempts to connect to a server; calls fail immediately meanwhile,
    /// unless they [wait](CallOptions::wait_for_ready). Default: from 500 ms, 1.6 times as long each time, up
    /// to 5 s; in a client that chooses among servers, or retries calls, [`Backoff::default`]. Each delay is
    /// varied at random by up to a fifth, in either direction.
    ///
    /// An attempt has failed if no connection could be established, or if the connection ended before any
    /// reply (the first such connection is replaced at once). The first reply resets the delay.
    pub fn connect_backoff(mut self, backoff: Backoff) -> Self {
        self.connect_backoff = Some(backoff);
        self
    }

    /// Sets the format of every request. Default: the preference of codec and protocol.
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Sets the compression of requests. Default: none.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets which compressions the compressor numbers of rpcx denote, as registered by the server. Default: none and
    /// gzip. Over rpcx, a call with a [compression](Self::compression) that is not among them fails before it is sent.
    pub fn rpcx_compressors(mut self, compressors: Compressors) -> Self {
        self.compressors = compressors;
        self
    }

    /// Sets the credential of the caller: baidu_std's `authentication_data`, rpcx's `__AUTH`, HTTP's `Authorization`.
    pub fn credential(mut self, credential: impl Into<Bytes>) -> Self {
        self.credential = Some(credential.into());
        self
    }

    /// Sets the limits for data from the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Counts the bytes that the client's connections hold in this budget: replies and messages of streams that are
    /// incomplete or not consumed yet, and data that their servers have not read. A blocking client rejects it.
    pub fn memory_budget(mut self, budget: &MemoryBudget) -> Self {
        self.memory = Some(budget.clone());
        self
    }

    /// Sets the maximum number of idle connections in a pool. Default: 100.
    pub fn max_idle_connections(mut self, connections: usize) -> Self {
        self.pool_limits.idle = connections;
        self
    }

    /// Sets the maximum number of connections of [`ConnectionMode::Shared`] if a server limits the calls on each
    /// (HTTP/2). A call beyond that waits until another has ended. At least one; default: 8.
    pub fn max_shared_connections(mut self, connections: usize) -> Self {
        self.pool_limits.shared = connections.max(1);
        self
    }

    /// Reads from connections on these threads instead of the runtime of the first caller. A blocking client rejects it.
    pub fn executor(mut self, cores: Cores) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Sets the interval of heartbeats, for protocols that have them (rpcx, gRPC; over WebSocket every
    /// protocol, by WebSocket's PING); a connection is closed if its heartbeat remains unanswered until the
    /// next. Default: never; for rest_rpc, whose servers do not answer, every 5 s.
    ///
    /// gRPC's servers tolerate heartbeats only while they have calls to answer, and not often (grpc-go: every five
    /// minutes by default). They are sent only then, and half as often once a server closed a connection because of
    /// them. A blocking client rejects the setting.
    pub fn keepalive(mut self, every: Duration) -> Self {
        self.keepalive = Some(every);
        self
    }

    /// Sets the handler of messages that the server sends unsolicited (rpcx). It runs on the connection's task and must
    /// not block.
    pub fn on_push(mut self, handler: impl Fn(Push) + Send + Sync + 'static) -> Self {
        self.on_push = Some(Arc::new(handler));
        self
    }

    /// Adds a layer around every call, inside the layers that were added before.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        let (layer, fits) = Layers::one_for(Side::Client, layer);
        self.layers = self.layers.compose(&layer);
        self.misplaced = self.misplaced.take().or_else(|| fits.err());
        self
    }

    /// Calls a service by another name: what is called as `alias` is sent as `target`. The counterpart on the client of
    /// [`Server::alias`](crate::Server::alias).
    ///
    /// A name is looked up once: its target is not an alias again. Layers see the name that the program calls.
    ///
    /// ```
    /// let client = polyrpc::Client::builder("rpcx://127.0.0.1:8972")
    ///     .alias("geometry", "Geo")
    ///     .alias_method("math/times", "Arith/Mul");
    /// ```
    pub fn alias(mut self, alias: &str, target: &str) -> Self {
        self.aliases.add_service(alias, target);
        self
    }

    /// Calls a method by another name: `math/times` for `Arith/Mul`, or names without a service. It takes precedence
    /// over an [alias](Self::alias) of the service.
    pub fn alias_method(mut self, alias: &str, target: &str) -> Self {
        self.aliases.add_method(alias, target);
        self
    }

    /// Adds a hook that observes connections and attempts, after the hooks added before.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks.add(hook);
        self
    }

    /// Sets how to verify the server's certificate, and the client's identity, for URLs with TLS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: tls::Client) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the configuration of KCP, for URLs with KCP; the other side must have the same cipher and shards.
    #[cfg(feature = "kcp")]
    pub fn kcp(mut self, config: crate::kcp::Config) -> Self {
        self.kcp = Some(config);
        self
    }

    /// Sets the configuration of QUIC, for URLs with QUIC. Its TLS is set by [`tls`](Self::tls).
    #[cfg(feature = "quic")]
    pub fn quic(mut self, config: crate::quic::Config) -> Self {
        self.quic = Some(config);
        self
    }

    /// Discovers the servers, instead of calling the one that the URL names: the URL still selects protocol and
    /// parameters, and each instance its network. Watching starts with the first call, in that call's runtime or on
    /// [`executor`](Self::executor)'s threads, and ends when the last clone of the client is dropped.
    ///
    /// The last known servers remain valid while the registry fails, or returns no servers
    /// ([`accept_empty_resolution`](Self::accept_empty_resolution)). Inactive servers get no calls.
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
        self.channel_config().discover = Some(Box::new(discover));
        self
    }

    /// Sets the load balancer. Default: [`P2c`](balance::P2c).
    pub fn balance(mut self, balance: impl LoadBalancer) -> Self {
        self.channel_config().balance = Some(Box::new(balance));
        self
    }

    /// Sets what to do when a call fails. Default: [`FailMode::Failover`] in a client with discovery or any setting for
    /// failing calls; any other client of one server only tries another connection.
    pub fn fail_mode(mut self, mode: FailMode) -> Self {
        self.channel_config().fail_mode = mode;
        self
    }

    /// Sets how often a failed call may be retried. Default: 3.
    pub fn retries(mut self, retries: u32) -> Self {
        self.channel_config().retries = Some(retries);
        self
    }

    /// Sets the retry budget, which all calls of the client share.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.channel_config().budget = budget;
        self
    }

    /// Sets the delay before the same server, or any server after all have failed, is tried again; up to half of it is
    /// subtracted at random. Default: from 10 ms, twice as long each time, up to 1 s.
    pub fn retry_backoff(mut self, backoff: Backoff) -> Self {
        self.channel_config().backoff = Some(backoff);
        self
    }

    /// Sets the time without a reply after which [`FailMode::Failbackup`] calls a second server. Default: 10 ms, as
    /// usual with rpcx.
    pub fn backup_after(mut self, delay: Duration) -> Self {
        self.channel_config().backup = Backup::After(delay);
        self
    }

    /// Sets the delay of [`backup_after`](Self::backup_after) to a quantile of the recent latencies: with
    /// `0.95`, the slowest twentieth of the calls is also sent to a second server. It is at least a millisecond, and 10 ms
    /// until enough calls have been answered.
    pub fn backup_quantile(mut self, quantile: f64) -> Self {
        self.channel_config().backup = Backup::Quantile(quantile);
        self
    }

    /// Sets when a failing server is ejected for a while. Default: never.
    pub fn circuit_breaker(mut self, breaker: CircuitBreaker) -> Self {
        self.channel_config().breaker = Some(breaker);
        self
    }

    /// Sets how ejected and unreachable servers are checked, or with [`HealthCheck::always`] all servers.
    /// Default: [`HealthCheck::connect`].
    pub fn health_check(mut self, health: HealthCheck) -> Self {
        self.channel_config().health = Some(health);
        self
    }

    /// Protects the first servers that recover from the load of a whole cluster, as in brpc
    /// (`cluster_recover_policy.h`), for any balancer. Default: no protection.
    ///
    /// Recovery starts when a call finds no healthy server. From then on calls are rejected at random, with a
    /// probability equal to the share of servers that are missing from `min_working`, the number that can handle all
    /// calls: if three of six are back, every second call. Recovery ends when the number of healthy servers has not
    /// changed for `hold`.
    ///
    /// A rejected call fails with [`Unavailable`](crate::Code::Unavailable) and brpc's code for it, 1018 (`EREJECT`).
    /// It reached no server, and is not retried.
    pub fn cluster_recovery(mut self, min_working: usize, hold: Duration) -> Self {
        self.channel_config().recovery = Some(RecoveryPolicy { min_working, hold });
        self
    }

    /// Calls only servers of this group, as assigned by the registry.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.channel_config().group = Some(group.into());
        self
    }

    /// Accepts that the registry has no servers although it had some before: calls fail then.
    ///
    /// By default an empty list is ignored if servers were known before, because a registry that lost its
    /// data also returns one; and after an empty or failed resolution, servers missing from later lists are
    /// kept for 10 s, unless they are unreachable. If all existing servers were made inactive, or moved to
    /// other groups, calls fail in any case.
    pub fn accept_empty_resolution(mut self) -> Self {
        self.channel_config().accepts_empty_sets = true;
        self
    }

    /// Fails calls as soon as the registry fails while no server is known. Default: off; they wait up to their
    /// deadline, since the registry is queried again. This suits programs that make one call and exit.
    pub fn fail_with_registry(mut self) -> Self {
        self.channel_config().fails_with_registry = true;
        self
    }

    /// Declares every call idempotent, like [`CallOptions::idempotent`].
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Creates the client. No connection is made yet.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or the files for TLS cannot be read.
    pub fn build(mut self) -> Result<Client> {
        let (url, discover) = self.resolve_url()?;
        self.build_with_discovery(url, discover)
    }

    /// Creates a client with these servers.
    fn build_with_discovery(mut self, url: Url, discover: Option<Box<dyn Discover>>) -> Result<Client> {
        if let Some(status) = self.misplaced.take() {
            return Err(status.into());
        }
        let defaults = CallDefaults {
            target: discover.as_ref().map_or_else(|| Target::from_url(&url), |_| Target::found_by(&self.url)),
            ..self.defaults(&url)
        };
        let mut layers = std::mem::take(&mut self.layers);
        if !self.aliases.is_empty() {
            layers = layers.compose(&Layers::one(std::mem::take(&mut self.aliases)));
        }
        let backend = match (self.channel_config.take(), discover) {
            (None, None) => {
                let tls = self.connector(&url)?;
                Backend::Network(Arc::new(self.pool(url, tls)?))
            }
            (channel_config, discover) => {
                let discover = discover.unwrap_or_else(|| Box::new(List::new([url.instance()])));
                let channel_config = channel_config.map_or_else(ChannelConfig::default, |config| *config);
                let backoff = self.connect_backoff.get_or_insert_default();
                if let Some(health) = &channel_config.health {
                    backoff.max = backoff.max.min(health.interval);
                }
                let (name, factory) = (discovery::redacted(&self.url), Factory::new(self, url));
                Backend::Channel(Arc::new(Channel::new(
                    name,
                    channel_config,
                    discover,
                    factory,
                    defaults.retains_calls,
                )))
            }
        };
        Ok(Client { backend, defaults: Arc::new(defaults), layers })
    }

    /// Creates a client that needs no runtime.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build); and if the URL or a setting needs the asynchronous client.
    pub fn build_blocking(self) -> Result<blocking::Client> {
        blocking::Client::from_builder(self)
    }

    fn channel_config(&mut self) -> &mut ChannelConfig {
        self.channel_config.get_or_insert_default()
    }

    /// Returns how servers are called, and the discovery unless the URL names a server.
    fn resolve_url(&mut self) -> Result<(Url, Option<Box<dyn Discover>>)> {
        let known = self.known_protocols();
        if let Some(discover) = self.channel_config.as_mut().and_then(|config| config.discover.take()) {
            return Ok((Url::parse_service(&self.url, &known)?, Some(discover)));
        }
        if let Some(found) = DiscoveryUrl::parse(&self.url, &known)?
            && let Some(discover) = discovery::open(&found.registry, &found.rest)?
        {
            return Ok((found.url()?, Some(discover)));
        }
        Ok((Url::parse(&self.url, &known)?, None))
    }

    /// Whether the client needs a channel.
    fn uses_channel(&self) -> Result<bool> {
        let found = DiscoveryUrl::parse(&self.url, &self.known_protocols())?;
        let names_registry = |word: &str| matches!(discovery::open(word, ""), Ok(Some(_)) | Err(_));
        Ok(self.channel_config.is_some() || found.is_some_and(|found| names_registry(&found.registry)))
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
            unsupported: UnsupportedWarnings::new(protocol),
            near: DataConnector::new(&url.address, self.connect_timeout),
            target: Target::from_url(url),
        }
    }

    /// Returns the connector of the transport.
    fn transport_connector(&self, url: &Url) -> Result<TransportConnector, Status> {
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

    /// Returns the TLS connector, if the URL requests TLS.
    fn connector(&self, url: &Url) -> Result<Option<tls::Connector>, Status> {
        match (&self.tls, url.tls) {
            (settings, true) => tls::connector(settings.as_ref(), url.begins_with(), url.host()).map(Some),
            (None, false) => Ok(None),
            // The settings are QUIC's.
            (Some(_), false) if matches!(url.address, Address::Quic(_)) => Ok(None),
            // Data meant to be encrypted must not be sent in clear text.
            (Some(_), false) => Err(Status::invalid_argument(format!(
                "`{}` is for clear text, but TLS was set up: write +tls after the protocol",
                discovery::redacted(&self.url)
            ))),
        }
    }

    /// Returns the factory of sessions for connections to this URL.
    fn sessions(&self, url: &Url) -> Result<Arc<dyn SessionFactory>, Status> {
        let context = SessionContext {
            limits: self.limits.clone(),
            credential: self.credential.clone(),
            dialect: url.dialect.clone(),
            authority: url.authority(),
            is_secured: url.tls,
            connect: url.connect.clone(),
        };
        let added = self.protocols.iter().find(|(added, _)| *added == url.protocol);
        let sessions = match added {
            Some((_, build)) => build(context.clone()),
            None => {
                let has_memory_budget = self.memory.is_some();
                let options = built_in::Options { compressors: self.compressors, has_memory_budget };
                built_in::session_factory(url.protocol, context.clone(), options)?
            }
        };
        Ok(match &url.websocket {
            None => sessions,
            Some(path) => built_in::within_websocket(sessions, &context, path),
        })
    }

    /// Returns the protocols that URLs may name.
    fn known_protocols(&self) -> Vec<Protocol> {
        Protocol::ALL.into_iter().chain(self.protocols.iter().map(|(added, _)| *added)).collect()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("url", &discovery::redacted(&self.url))
            .field("kind", &self.kind)
            .field("credential", &redact(self.credential.as_ref()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

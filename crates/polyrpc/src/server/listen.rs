use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use polyrpc_core::{Json, Status};
use polyrpc_wire::Protocol;
use polyrpc_wire::fb_rpc::Magic;
use polyrpc_wire::net_rpc::Codec;
use polyrpc_wire::rest_rpc::Version;
use tracing::{Instrument, Level, Span};

use super::authentication::{AuthenticateFuture, Authenticator};
use super::bound_listener::BoundListener;
use super::connections::ConnectionGuard;
use super::listener_context::{ListenerContext, ListenerOptions, ListenerProtocols};
use super::proxy_header::TrustedProxies;
use super::{Shared, detect};
use crate::call::Peer;
use crate::cores::Cores;
use crate::layers::IpList;
use crate::transport::{Address, Listener, Stream, TransportConfig, tls};

/// Address of a listener, its protocols, and its requirements for clients.
///
/// ```
/// # use polyrpc::{Protocol, Status, server::Listen};
/// let inside = Listen::on("127.0.0.1:8000");
/// let outside = Listen::on("0.0.0.0:8001").protocols([Protocol::Http]).authenticate(|credential, _peer| {
///     match credential {
///         Some(b"secret-token") => Ok(()),
///         _ => Err(Status::unauthenticated("invalid token")),
///     }
/// });
/// ```
pub struct Listen {
    pub(super) address: String,
    in_process: bool,
    protocols: ListenerProtocols,
    authenticator: Option<Authenticator>,
    tls: Option<tls::Server>,
    transport: TransportConfig,
    options: ListenerOptions,
}

impl Listen {
    /// Listens on this address for every protocol of the server that can be detected from the first bytes of a
    /// connection: `127.0.0.1:8000`, `[::]:8000`, `unix:/run/echo.sock`. Port 0 picks a free one.
    pub fn on(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            in_process: false,
            protocols: ListenerProtocols::Every,
            authenticator: None,
            tls: None,
            transport: TransportConfig::default(),
            options: ListenerOptions::default(),
        }
    }

    /// Opens no socket: only code in this process can connect, by [`ServerHandle::client`](super::ServerHandle::client)
    /// and [`ServerHandle::connector`](super::ServerHandle::connector). All other settings of this listener apply.
    pub fn in_process() -> Self {
        Self { in_process: true, ..Self::on("unix:in-process") }
    }

    /// Accepts only these protocols. Built-in ones need not be added to the server.
    #[must_use]
    pub fn protocols(mut self, protocols: impl IntoIterator<Item = Protocol>) -> Self {
        self.protocols = ListenerProtocols::Sniffed(protocols.into_iter().collect());
        self
    }

    /// Accepts only Go's `net/rpc`, in this codec. Needed for codecs that cannot be detected from the first bytes, such
    /// as [`Codec::Protobuf`] and [`Codec::Gencode`].
    ///
    /// A type that Go's gob cannot carry (`serde(flatten)`, integers of 128 bits) is already an error when a listener
    /// for gob alone, or [for `net/rpc`](Self::protocols) by name, is bound. A listener of all protocols accepts it: only
    /// the calls over gob fail.
    #[must_use]
    pub fn net_rpc(mut self, codec: Codec) -> Self {
        self.protocols = ListenerProtocols::NetRpc(codec);
        self
    }

    /// Accepts only rest_rpc, and only this version of it.
    ///
    /// By default v0.12 to v0.20, and v0.21 with its default byte order, are detected from the first bytes of a
    /// connection; other versions cannot be detected.
    #[must_use]
    pub fn rest_rpc(mut self, version: Version) -> Self {
        self.protocols = ListenerProtocols::RestRpc(version);
        self
    }

    /// Accepts only fb_rpc, and only frames with this magic. Other listeners accept both magics, and answer each frame
    /// with its own. How a client numbers services needs no setting: each service is registered under the
    /// numbers of both hashes.
    #[must_use]
    pub fn fb_rpc(mut self, magic: Magic) -> Self {
        self.protocols = ListenerProtocols::FbRpc(magic);
        self
    }

    /// Accepts only calls whose credential is accepted by `check`.
    ///
    /// Every credential is checked. Where a protocol sends it with every call (HTTP, rpcx, gRPC), a call without one is
    /// checked too; where it is sent once (baidu_std), later calls are trusted after one was accepted on their
    /// connection. brpc's clients send it once over HTTP, too: see
    /// [`trust_http_connections`](Self::trust_http_connections) and
    /// [`trust_grpc_connections`](Self::trust_grpc_connections). `check` runs on the connection's task and must not
    /// block. [`layers::auth`](crate::layers::auth) has some ready-made authenticators.
    #[must_use]
    pub fn authenticate(
        mut self,
        check: impl Fn(Option<&[u8]>, &Peer) -> Result<(), Status> + Send + Sync + 'static,
    ) -> Self {
        self.authenticator = Some(Authenticator::Sync(Arc::new(check)));
        self
    }

    /// Accepts only calls whose credential is accepted by `check`, which may query other systems, such as a database.
    /// Otherwise the same as [`authenticate`](Self::authenticate).
    ///
    /// A check that takes longer than
    /// [`Limits::authentication_timeout`](super::Limits::authentication_timeout) fails the call with
    /// `unavailable`. Other calls continue meanwhile, except those that depend on the credential being
    /// checked.
    ///
    /// ```
    /// # use polyrpc::{Status, server::Listen};
    /// # async fn is_known(token: &[u8]) -> bool { token == b"secret-token" }
    /// let outside = Listen::on("0.0.0.0:8001").authenticate_async(|credential, _peer| async move {
    ///     match credential {
    ///         Some(token) if is_known(&token).await => Ok(()),
    ///         _ => Err(Status::unauthenticated("invalid token")),
    ///     }
    /// });
    /// ```
    #[must_use]
    pub fn authenticate_async<Fut>(
        mut self,
        check: impl Fn(Option<Bytes>, Peer) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let check = move |credential, peer| -> AuthenticateFuture { Box::pin(check(credential, peer)) };
        self.authenticator = Some(Authenticator::Async(Arc::new(check)));
        self
    }

    /// Applies an accepted credential to the other requests of its HTTP/1.1 connection that carry none, as brpc's
    /// server does. Off by default.
    ///
    /// It is for brpc's own clients, which send their credential only with the first request of a connection. Behind a
    /// proxy that sends the requests of several callers on one connection, callers without a credential would be
    /// accepted as callers that sent one. HTTP/2 is not affected: there each request carries its credential.
    #[must_use]
    pub fn trust_http_connections(mut self) -> Self {
        self.options.trust_http = true;
        self
    }

    /// Applies an accepted credential to the other calls of its gRPC connection that carry none. Off by default.
    ///
    /// It is for brpc's C++ client with the protocol `h2:grpc` and an `Authenticator`, which sends its credential once
    /// per connection. The warning of [`trust_http_connections`](Self::trust_http_connections) applies here too.
    #[must_use]
    pub fn trust_grpc_connections(mut self) -> Self {
        self.options.trust_grpc = true;
        self
    }

    /// Accepts HTTP requests as brpc's server does: methods run by any HTTP method and with any content type,
    /// for pages of any origin, and `GET /version` lists the names of the services. Off by default.
    ///
    /// By default a method of the mapping (`/Service/Method`) runs by POST with a known content type, by GET only if a
    /// `google.api.http` rule or `idempotency_level = NO_SIDE_EFFECTS` allows it, and for a page of another origin only
    /// if [`Server::cors`](crate::Server::cors) allows it. With this switch any web page can run any method of a server
    /// that its visitor's browser reaches.
    #[must_use]
    pub fn lenient_http(mut self) -> Self {
        self.options.lenient_http = true;
        self
    }

    /// Sets the JSON dialect in which HTTP's `POST /Service/Method` is read and answered if the request names none.
    /// Default: [`Json::Brpc`]. ProtoJSON is protobuf's own JSON format.
    ///
    /// | dialect | a message of a `.proto` is answered | and read |
    /// |---|---|---|
    /// | [`Json::Brpc`] | as brpc writes it: the names of the `.proto`, 64-bit integers as numbers, well-known types field by field | by either name, in every form that ProtoJSON or brpc's has for a value |
    /// | [`Json::Proto3`] | in ProtoJSON: lowerCamelCase names, 64-bit integers as strings, well-known types in their own forms | the same |
    /// | [`Json::Go`] | as Go's `encoding/json` writes the struct | as Go reads it: strings are not accepted as numbers |
    /// | [`Json::BrpcLenient`] | as brpc writes it | as brpc reads it: **a value of the wrong type is dropped**, names are those of the `.proto` |
    ///
    /// In all but the last, a value of the wrong type is rejected: 400, `A: expected int64, found string`.
    /// Fields that the message does not have are ignored, as grpc-gateway and Connect do, and
    /// [counted](crate::introspection::ServerInfo). In [`Json::Proto3`] an enum value of an unknown name is
    /// treated like an unknown field, as by protobuf's parsers; all other dialects reject it, except for
    /// optional fields in [`Json::BrpcLenient`].
    ///
    /// The default is brpc's dialect because the mapping of these paths is brpc's: its clients only read the
    /// names of the `.proto`, and a client that sends these names receives them back. Regardless of this
    /// setting, requests by a rule of `google.api.http` and gRPC with JSON use [`Json::Proto3`], and JSON-RPC
    /// and rpcx use [`Json::Go`].
    ///
    /// A request may select another dialect by its `Accept`: `application/proto-json` (brpc's name for ProtoJSON)
    /// or `application/json;dialect=proto3`, and likewise `brpc` and `go`. Its own `Content-Type` selects it too, if it
    /// is `application/proto-json`.
    ///
    /// Failures are JSON, `{"code":3,"message":"…","details":[]}`; with [`Json::BrpcLenient`] they are brpc's text.
    /// JSON over baidu_std is then read leniently too.
    ///
    /// ```
    /// # use polyrpc::{Json, server::Listen};
    /// let pages = Listen::on("0.0.0.0:8001").json(Json::Proto3);
    /// let as_brpc_did = Listen::on("0.0.0.0:8002").json(Json::BrpcLenient).lenient_http();
    /// ```
    #[must_use]
    pub fn json(mut self, dialect: Json) -> Self {
        self.options.json = Some(dialect);
        self
    }

    /// Adds names under which HTTP requests may call this server, as in `Host`, with or without a port. IP
    /// addresses and `localhost` are always allowed. Other names are answered with 421. Default: any name, with one
    /// exception.
    ///
    /// On a listener whose address is a loopback one, a request that a browser may have sent (one with `Origin` or
    /// `Sec-Fetch-Site`, or a GET) must name an IP address, `localhost` or one of these: a web page whose own name was
    /// made to resolve to 127.0.0.1 (DNS rebinding) would otherwise count as a page of this server. A proxy on the same
    /// machine that passes the public name on as `Host` needs that name listed.
    #[must_use]
    pub fn hosts<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.options.hosts.extend(names.into_iter().map(Into::into));
        self
    }

    /// Connections make room for others first until [`Monitor::prove_connection`](super::Monitor::prove_connection) is
    /// called: for a handler that checks credentials itself. With an authenticator, this is the default.
    #[doc(hidden)]
    #[must_use]
    pub fn expect_credentials(mut self) -> Self {
        self.options.expects_credentials = true;
        self
    }

    /// Expects that connections from these networks begin with a header of the PROXY protocol (version 1 or 2), as
    /// HAProxy, nginx and load balancers of clouds send it: addresses, and networks as `10.0.0.0/8`. The address in it
    /// is then the peer of the connection's calls, for authenticators and handlers. Proxies on Unix sockets count as
    /// listed.
    ///
    /// A listed peer without a valid header is disconnected; connections of other peers have no header, so no other
    /// peer can claim an address. Limits for each peer address, and hooks that see connections, use the
    /// proxy's address.
    ///
    /// # Errors
    ///
    /// If one of them is neither an address nor a network.
    ///
    /// ```
    /// # fn main() -> polyrpc::Result<()> {
    /// use polyrpc::server::Listen;
    ///
    /// let behind_haproxy = Listen::on("0.0.0.0:8000").proxy_protocol(["10.0.0.0/8"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn proxy_protocol<T: AsRef<str>>(
        mut self,
        networks: impl IntoIterator<Item = T>,
    ) -> Result<Self, crate::Error> {
        self.options.proxies = Some(TrustedProxies(IpList::allow(networks)?));
        Ok(self)
    }

    /// Lets a connection change between baidu_std, HTTP/1.1, gRPC and fb_rpc from one message to the next, as brpc's
    /// server does. Off by default.
    ///
    /// A proxy that knows one protocol could otherwise be tricked into passing on messages of another. Explicit
    /// switches work in either case: `CONNECT`, WebSocket, HTTP/2 by upgrade.
    #[must_use]
    pub fn allow_protocol_switch(mut self) -> Self {
        self.options.allow_protocol_switch = true;
        self
    }

    /// Accepts TLS too, or nothing else if it [rejects plaintext](crate::tls::Builder::reject_plaintext).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: tls::Server) -> Self {
        #[cfg(feature = "quic")]
        {
            self.transport.tls = Some(tls.clone());
        }
        self.tls = Some(tls);
        self
    }

    /// Listens by KCP, over UDP, with this configuration; the other side must have the same cipher and shards.
    ///
    /// `Listen::on("kcp://0.0.0.0:8973")` uses the default [`kcp::Config`](crate::kcp::Config): clear text. Binding fails
    /// if the address names another transport.
    #[cfg(feature = "kcp")]
    #[must_use]
    pub fn kcp(mut self, config: crate::kcp::Config) -> Self {
        self.transport.kcp = Some(config);
        self
    }

    /// Listens by QUIC, over UDP, which needs [`tls`](Self::tls).
    ///
    /// `Listen::on("quic://0.0.0.0:8974")` uses the default [`quic::Config`](crate::quic::Config). Binding fails if the
    /// address names another transport.
    #[cfg(feature = "quic")]
    #[must_use]
    pub fn quic(mut self, config: crate::quic::Config) -> Self {
        self.transport.quic = Some(config);
        self
    }

    /// Binds the listener.
    pub(super) async fn bind(
        mut self,
        server: Arc<Shared>,
    ) -> io::Result<(Option<Listener>, Arc<BoundListener>)> {
        let address: Address = self.address.parse().map_err(|error: Status| {
            io::Error::new(io::ErrorKind::InvalidInput, error.message().to_owned())
        })?;
        self.protocols.check(&server.router)?;
        let address = self.transport.resolve(address)?;
        self.transport.unacknowledged = Some(server.limits.write_timeout.saturating_add(KERNEL_MARGIN));
        #[cfg(feature = "quic")]
        {
            let incidents = server.open.incidents.clone();
            let count =
                move |error: &io::Error, peer: &Peer| incidents.record_quic_handshake_failure(error, peer);
            self.transport.on_failed_handshake = Some(crate::quic::OnFailedHandshake::new(count));
        }
        let (listener, address) = match self.in_process {
            true => (None, address),
            false => {
                let listener = Listener::bind(&address, self.transport).await?;
                let address = listener.address()?;
                (Some(listener), address)
            }
        };
        let context = ListenerContext::new(
            server,
            &self.protocols,
            self.authenticator,
            self.tls,
            &self.options,
            address,
        );
        let bound = BoundListener::new(context, &self.protocols, &self.options)?;
        Ok((listener, Arc::new(bound)))
    }
}

impl From<&str> for Listen {
    fn from(address: &str) -> Self {
        Self::on(address)
    }
}

impl From<String> for Listen {
    fn from(address: String) -> Self {
        Self::on(address)
    }
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listen")
            .field("address", &self.address)
            .field("protocols", &self.protocols)
            .field("authenticates", &self.authenticator.is_some())
            .field("tls", &self.tls)
            .finish()
    }
}

/// Accepts connections for as long as it is polled.
pub(super) async fn accept_loop(listener: Listener, bound: Arc<BoundListener>) {
    let mut accepted = 0_usize;
    loop {
        accepted += 1;
        if accepted.is_multiple_of(ACCEPT_BATCH) {
            // The runtime polls its sockets before this task continues.
            tokio::task::yield_now().await;
        }
        match listener.accept().await {
            Ok((stream, peer)) => accept(&bound, stream, peer),
            Err(error) if is_connection_error(&error) => {}
            // Out of descriptors or memory: the next attempt would fail at once too.
            Err(error) => {
                bound.context.server.open.record_accept_failure(&error);
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Serves a connection in its own task, if there is room for one more.
pub(super) fn accept(bound: &Arc<BoundListener>, stream: Stream, peer: Peer) {
    let Some(registration) = bound.context.server.open.try_register(peer.clone()) else { return };
    registration.register_with(&stream);
    if bound.context.expects_credentials {
        registration.connection.expect_credential();
    }
    if tracing::enabled!(target: TARGET, Level::DEBUG) {
        return accept_traced(bound, stream, peer, registration);
    }
    match &bound.context.server.cores {
        None => drop(tokio::spawn(detect::serve(stream, peer, bound.clone(), registration))),
        Some(cores) => accept_on(cores, bound.clone(), stream, peer, registration, Span::none()),
    }
}

/// As [`accept`], within a span if a subscriber is interested.
#[cold]
fn accept_traced(bound: &Arc<BoundListener>, stream: Stream, peer: Peer, registration: ConnectionGuard) {
    let connection = registration.connection.id();
    let span = tracing::debug_span!(target: TARGET, "connection", connection, %peer);
    span.in_scope(|| tracing::debug!(target: TARGET, "a connection was accepted"));
    match &bound.context.server.cores {
        None => drop(tokio::spawn(detect::serve(stream, peer, bound.clone(), registration).instrument(span))),
        Some(cores) => accept_on(cores, bound.clone(), stream, peer, registration, span),
    }
}

const TARGET: &str = "polyrpc::server";

/// Moves the socket to another runtime, which must watch it with its own reactor.
fn accept_on(
    cores: &Cores,
    bound: Arc<BoundListener>,
    stream: Stream,
    peer: Peer,
    registration: ConnectionGuard,
    span: Span,
) {
    // A socket that cannot be moved is closed, as if it was never accepted.
    let Ok(stream) = stream.detach() else { return };
    let serve = async move {
        if let Ok(stream) = stream.attach() {
            detect::serve(stream, peer, bound, registration).await;
        }
    };
    cores.spawn(serve.instrument(span));
}

/// Returns whether an error of `accept` concerns only the connection that was about to be accepted.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// Number of connections that are accepted before others are polled: together they take less than a millisecond. The
/// runtime alone would let 128 pass.
const ACCEPT_BATCH: usize = 16;

const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Added to `write_timeout` for `TCP_USER_TIMEOUT`, so that a server with pending output closes first and can
/// tell the peer why.
const KERNEL_MARGIN: Duration = Duration::from_secs(2);

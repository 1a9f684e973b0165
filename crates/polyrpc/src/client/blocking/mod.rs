//! Client without a runtime: the caller's thread writes the request and reads the reply.
//!
//! No work is passed to another task or thread. A connection carries one call at a time: each call takes one from a
//! pool.

mod connect_gate;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use polyrpc_core::{Retry, Scope, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::connect_gate::BlockingConnectGate;
use super::call_defaults::CallDefaults;
use super::connection::blocking::{AnyConnection, Socket};
use super::connection::sessions::SessionFactory;
use super::connection::{Backoff, PushHandler};
use super::pool::ConnectionMode;
use super::url::Url;
use super::{Builder, split};
use crate::call::{CallOptions, Request, Response, StubMethod};
use crate::client::Result;
use crate::codec::{Body, Codec};
use crate::contention::{Mutex, MutexGuard};
use crate::transport::{Address, tls};

/// Client of one server, for threads without a runtime.
///
/// Cheap to clone; clones share a pool of connections. [`ConnectionMode::Short`] connects for each call; the other
/// modes use the pool.
///
/// Only the asynchronous client supports several servers ([`Builder::discover`]), streams, layers, hooks, aliases,
/// memory budgets, keepalive, an executor, `wait_for_ready`, and the transports `kcp`, `quic` and `http-connect`.
///
/// ```no_run
/// # fn main() -> polyrpc::Result<()> {
/// use polyrpc::blocking::Client;
///
/// let client = Client::new("baidu-std://127.0.0.1:8000")?;
/// let reply: String = client.call("echo", "hello")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    address: Address,
    tls: Option<tls::Connector>,
    sessions: Arc<dyn SessionFactory>,
    defaults: CallDefaults,
    connect_timeout: Duration,
    /// Pause after connecting before the first call is sent (old versions of rest_rpc).
    settle_time: Option<Duration>,
    gate: BlockingConnectGate,
    on_push: Option<PushHandler>,
    /// Maximum number of idle connections.
    max_idle: usize,
    idle_connections: Mutex<Vec<Box<dyn AnyConnection>>>,
}

impl Client {
    /// Creates a client of the server at `url`, as [`Client::new`](super::Client::new).
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or names a registry or a transport that only the asynchronous client supports. No
    /// connection is made yet.
    pub fn new(url: &str) -> Result<Self> {
        Builder::new(url).build_blocking()
    }

    pub(super) fn from_builder(builder: Builder) -> Result<Self> {
        if builder.uses_channel()? {
            return Err(Status::unimplemented(
                "discovery, load balancing and retries need a runtime: use the asynchronous client",
            )
            .into());
        }
        if let Some(status) = builder.misplaced.clone() {
            return Err(status.into());
        }
        let url = Url::parse(&builder.url, &builder.known_protocols())?;
        if !builder.layers.is_empty() || !builder.hooks.is_empty() || !builder.aliases.is_empty() {
            return Err(
                Status::unimplemented("layers, hooks and aliases need the asynchronous client").into()
            );
        }
        if builder.memory.is_some() {
            return Err(Status::unimplemented("a memory budget needs the asynchronous client").into());
        }
        if builder.keepalive.is_some() || builder.cores.is_some() {
            return Err(Status::unimplemented(
                "keepalive and an executor need the asynchronous client: a blocking client reads and writes only during \
                 calls",
            )
            .into());
        }
        let unsupported = match url.address {
            // KCP and QUIC need background work between calls.
            Address::Kcp(_) => Some("kcp"),
            Address::Quic(_) => Some("quic"),
            _ => url.connect_before_session().map(|_| "http-connect"),
        };
        if let Some(transport) = unsupported {
            let protocol = url.protocol.as_str();
            return Err(Status::unimplemented(format!(
                "`transport={transport}` of {protocol} needs a runtime: use the asynchronous client, or tcp, unix or ws"
            ))
            .into());
        }
        Ok(Self(Arc::new(Inner {
            tls: builder.connector(&url)?,
            sessions: builder.sessions(&url)?,
            defaults: builder.defaults(&url),
            settle_time: url.settle_time(),
            gate: BlockingConnectGate::new(builder.connect_backoff.unwrap_or_else(Backoff::single_server)),
            address: url.address,
            connect_timeout: builder.connect_timeout,
            on_push: builder.on_push,
            max_idle: if builder.kind == ConnectionMode::Short { 0 } else { builder.pool_limits.idle },
            idle_connections: Mutex::default(),
        })))
    }

    /// Calls a function or a method with plain types, as [`Client::call`](super::Client::call).
    ///
    /// # Errors
    ///
    /// The failure returned by the server, or the reason why the server could not be called.
    pub fn call<Resp: DeserializeOwned + 'static>(
        &self,
        target: &str,
        arguments: &(impl Serialize + ?Sized),
    ) -> Result<Resp> {
        let options = CallOptions::default();
        let body = self.0.defaults.encode_plain(arguments, &options)?;
        let (service, method) = split(target);
        let response = self.0.call(service, method, body, options)?;
        Ok(response.decode_plain()?)
    }

    /// Calls a method with an encoded message and returns the encoded reply.
    ///
    /// # Errors
    ///
    /// See [`call`](Self::call).
    pub fn call_raw(&self, target: &str, body: Body, options: CallOptions) -> Result<Response<Body>> {
        let (service, method) = split(target);
        Ok(self.0.call(service, method, body, options)?)
    }

    /// Calls a method for a typed stub.
    ///
    /// # Errors
    ///
    /// See [`call`](Self::call).
    pub fn invoke<C, Req, Resp>(
        &self,
        stub_method: &StubMethod,
        request: impl Into<Request<Req>>,
    ) -> Result<Response<Resp>>
    where
        C: Codec<Req> + Codec<Resp>,
    {
        let Request { message, options } = request.into();
        let body = self.0.defaults.encode::<C, Req>(message, stub_method.input.as_ref(), &options)?;
        let method = stub_method.name_in(self.0.defaults.protocol);
        let response = self.0.call(stub_method.service, method, body, options)?;
        Ok(response.decode::<C, Resp>(stub_method.output.as_ref())?)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl Inner {
    fn call(
        &self,
        service: &str,
        method: &str,
        body: Body,
        options: CallOptions,
    ) -> Result<Response<Body>, Status> {
        if options.wait_for_ready {
            return Err(Status::unimplemented("`wait_for_ready` needs the asynchronous client"));
        }
        let mut call = self.defaults.call(service, method, body, options)?;
        let now = Instant::now();
        let deadline = call.timeout.and_then(|timeout| now.checked_add(timeout));
        let (mut connection, connect_start) = match self.take_idle(now) {
            Some(connection) => (connection, None),
            None => {
                let connect_start = self.gate.wait_turn(deadline)?;
                let connection = self.connect(connect_start, deadline)?;
                // Connecting took part of the time; the call has the rest.
                call.timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                (connection, Some(connect_start))
            }
        };
        let format = call.head.format;
        let outcome = connection.call(call, now, deadline, self.on_push.as_ref());
        if let Some(connect_start) = connect_start {
            self.gate.record_first_call(&self.address, connect_start, &outcome);
        }
        // After an error the connection is not reused: a late reply may still arrive.
        let reply = outcome?;
        self.return_connection(connection);
        self.defaults.open(reply, format)
    }

    fn take_idle(&self, now: Instant) -> Option<Box<dyn AnyConnection>> {
        loop {
            let connection = self.lock().pop()?;
            if connection.is_usable(now) {
                return Some(connection);
            }
        }
    }

    fn return_connection(&self, connection: Box<dyn AnyConnection>) {
        let mut idle = self.lock();
        if idle.len() < self.max_idle && connection.is_reusable() {
            idle.push(connection);
        }
    }

    fn connect(
        &self,
        connect_start: Instant,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn AnyConnection>, Status> {
        let left =
            deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(Status::deadline_exceeded("no connection in time"));
        }
        let socket = Socket::connect(&self.address, self.tls.as_ref(), self.connect_timeout.min(left));
        let socket = socket.map_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut && left < self.connect_timeout {
                return Status::deadline_exceeded("no connection in time");
            }
            let reason = Status::unavailable(format!("cannot connect to {}: {error}", self.address))
                .with_scope(Scope::Connection)
                .with_retry(Retry::Elsewhere)
                .with_source(error);
            self.gate.on_connect_error(&self.address, connect_start, &reason);
            reason
        })?;
        self.gate.on_connect();
        if let Some(pause) = self.settle_time {
            std::thread::sleep(pause.min(left));
        }
        Ok(self.sessions.start_blocking(socket))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Box<dyn AnyConnection>>> {
        self.idle_connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
